"""Archives: the wanted files arrive whole; damaged and hostile archives change nothing."""

import bz2
import gzip
import io
import lzma
import random
import stat
import tarfile
import zipfile
from contextlib import suppress

import pytest

from shapeshift.data.sources.archives import is_archive, unpack
from shapeshift.errors import ShapeshiftError

TEXT = b"".join(b"sentence %d\n" % number for number in range(2_000))
FILES = {"a.en": TEXT, "sub/b.en": b"two\n", "other/c": b"three\n"}
WANTED = {"a.en", "sub/b.en", "not/there"}.__contains__


def tar(members, **options):
    """Return an archive of (name, content or header fields); a dict stands for a header alone."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", **options) as file:
        for name, data in members:
            member = tarfile.TarInfo(name)
            if isinstance(data, bytes):
                member.size = len(data)
                file.addfile(member, io.BytesIO(data))
            else:
                for key, value in data.items():
                    setattr(member, key, value)
                size, member.size = member.size, 0  # no data follows, whatever the header says
                file.addfile(member)
                if size:
                    member.size = size
                    content.seek(-tarfile.BLOCKSIZE, io.SEEK_CUR)
                    content.write(member.tobuf(tarfile.GNU_FORMAT))
    return content.getvalue()


def zipped(members):
    """Return a zip archive of (name, content or fields of its entry in the list of members)."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members:
            member = zipfile.ZipInfo(name)
            member.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(member, data if isinstance(data, bytes) else b"/etc/passwd")
            for key, value in data.items() if isinstance(data, dict) else ():
                setattr(member, key, value)
    return content.getvalue()


PACK = {
    ".tar": tar,
    ".tar.gz": lambda members: gzip.compress(tar(members)),
    ".tar.bz2": lambda members: bz2.compress(tar(members)),
    ".tar.xz": lambda members: lzma.compress(tar(members)),
    ".zip": zipped,
}
CHECKED = [".tar.gz", ".tar.bz2", ".tar.xz", ".zip"]  # with a checksum of the content


def put(folder, content, ending):
    folder.mkdir(exist_ok=True)
    path = folder / f"x{ending}"
    path.write_bytes(content)
    return path


def tree(folder):
    """Everything in a folder but archives and locks: links by their target, files by content."""
    return {
        str(path.relative_to(folder)): path.readlink() if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
        if not path.name.startswith((".x.", "x."))
    }


def refused(path, message):
    """Unpack an archive that is refused; nothing stays behind."""
    with pytest.raises(ShapeshiftError, match=message):
        unpack(path, path.parent, WANTED)
    assert tree(path.parent) == {}
    assert not [x for x in path.parent.iterdir() if x.is_dir()]


@pytest.mark.parametrize("ending", PACK)
def test_only_the_wanted_files_are_unpacked(ending, tmp_path):
    path = put(tmp_path, PACK[ending](FILES.items()), ending)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "old").write_text("old")
    assert is_archive(path)
    assert unpack(path, tmp_path, WANTED) == [tmp_path / "a.en", tmp_path / "sub" / "b.en"]
    assert tree(tmp_path) == {"a.en": TEXT, "sub/b.en": b"two\n", "sub/old": b"old"}


@pytest.mark.parametrize("name", ["../up.en", "sub/../../up.en", "/tmp/up.en"])
@pytest.mark.parametrize("ending", PACK)
def test_no_file_leaves_the_folder_whatever_is_wanted(ending, name, tmp_path):
    path = put(tmp_path / "here", PACK[ending]({name: b"out"}.items()), ending)
    with pytest.raises(ShapeshiftError, match="leaves the folder"):
        unpack(path, path.parent, lambda name: name.endswith(".en"))
    assert tree(tmp_path) == {}


LINK, HARD, DEVICE, FIFO = (
    {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
    {"type": tarfile.LNKTYPE, "linkname": "other/c"},
    {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3},
    {"type": tarfile.FIFOTYPE},
)
SPARSE = {"pax_headers": {"GNU.sparse.map": f"0,4,{40 << 30},0", "GNU.sparse.size": str(40 << 30)}}
ZIP_ENTRIES = [
    *({"external_attr": (kind | 0o777) << 16} for kind in (stat.S_IFLNK, stat.S_IFIFO)),
    {"external_attr": (stat.S_IFDIR | 0o777) << 16 | 0x10},
    {"flag_bits": 1},  # encrypted
]


@pytest.mark.parametrize(
    ("ending", "member"),
    [(".tar", x) for x in (LINK, HARD, DEVICE, FIFO, SPARSE, {"type": tarfile.DIRTYPE})]
    + [(".zip", x) for x in ZIP_ENTRIES],
)
def test_a_wanted_member_is_a_plain_file(ending, member, tmp_path):
    members = [*FILES.items(), ("not/there", member)]
    content = zipped(members) if ending == ".zip" else tar(members, format=tarfile.PAX_FORMAT)
    refused(put(tmp_path, content, ending), "'not/there' is twice in it or not a plain file")


def test_nothing_is_written_through_a_link_or_over_what_is_there(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    path = put(root, tar(FILES.items()), ".tar")
    (root / "sub").symlink_to(outside)
    with pytest.raises(ShapeshiftError, match=r"'sub/b\.en' leaves the folder"):
        unpack(path, root, WANTED)
    (root / "sub").unlink()
    (root / "a.en").symlink_to(outside / "a.en")
    with pytest.raises(ShapeshiftError, match=r"a\.en: is in the way of a file to be unpacked"):
        unpack(path, root, WANTED)
    assert tree(outside) == {}


def mutated(draw, content):
    """Flip, drop, repeat or insert some bytes; half of it within headers."""
    content = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 8])):
        place = draw.randrange(min(len(content), draw.choice([512, len(content)])))
        if draw.random() < 0.3:  # a zip archive's headers stand at its end
            place = len(content) - 1 - place
        match draw.randrange(4):
            case 0:
                content[place] ^= 1 << draw.randrange(8)
            case 1:
                del content[place : place + draw.randrange(1, 600)]
            case 2:
                content[place:place] = content[place : place + 512] * draw.randrange(1, 4)
            case 3:
                content[place : place + 8] = draw.randbytes(8)
        content = content or bytearray(1)
    return bytes(content)


NAMES = [
    *("../evil", "/tmp/evil", "a/../../evil", "..", ".", "", "a.en", "sub", "sub/b.en", "./a.en"),
    *("d/" * 200 + "x", "n" * 5000, "sub/b.en/c", "x.tar", ".partial-x.tar/1"),
]
TAR_HEADERS = [
    *(LINK, HARD, DEVICE, FIFO, SPARSE, {"type": tarfile.DIRTYPE}, {"type": b"Z"}),
    *({"size": 40 << 30}, {"size": -512}, {"type": tarfile.GNUTYPE_SPARSE, "size": 40 << 30}),
    *({"type": tarfile.XHDTYPE, "size": 1 << 40}, {"type": tarfile.GNUTYPE_LONGNAME, "size": 9}),
    {"pax_headers": {"size": "-1", "path": "../evil"}},
    {"pax_headers": {"GNU.sparse.map": "x", "GNU.sparse.size": "y" * 50}},
    {"type": tarfile.LNKTYPE, "linkname": "../" * 9 + "evil"},
]
ZIP_HEADERS = [
    *ZIP_ENTRIES,
    *({"file_size": 40 << 30}, {"compress_size": 40 << 30}, {"header_offset": 1 << 40}),
    *({"compress_type": 99}, {"compress_type": 14}, {"extract_version": 99}, {"CRC": 0}),
    {"extra": b"\x01\x00\xff\x00"},
]


def constructed(draw, ending):
    """Return the members of an archive that no honest one has, among those that are wanted."""
    names = NAMES if ending == ".zip" else [*NAMES, "\udcff\udcfe"]
    headers = ZIP_HEADERS if ending == ".zip" else TAR_HEADERS
    members = [
        (draw.choice(names), draw.choice([*headers, draw.randbytes(draw.randrange(2000))]))
        for _ in range(draw.randrange(1, 6))
    ]
    members += draw.sample([*FILES.items()], draw.randrange(3))
    draw.shuffle(members)
    return members


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_damaged_and_hostile_archives(tmp_path):
    """Each is refused in one sentence, or its wanted files arrive; nothing else changes."""
    draw, outside, messages, unpacked = random.Random(1), tmp_path / "outside", [], 0
    outside.mkdir()
    for number in range(300):
        ending = draw.choice([*PACK])
        members = constructed(draw, ending) if number % 2 else FILES.items()
        content = PACK[ending](members)
        damaged = number % 4 in (0, 3)
        if damaged:
            content = mutated(draw, content)
        root = tmp_path / f"root-{number}"
        path = put(root, content, ending)
        (root / "sub").symlink_to(outside) if draw.random() < 0.2 else None
        try:
            files = unpack(path, root, WANTED)
            unpacked += 1
        except ShapeshiftError as error:
            files, messages = [], [*messages, str(error)]
        links = {"sub": outside} if (root / "sub").is_symlink() else {}
        assert tree(root) == {str(x.relative_to(root)): x.read_bytes() for x in files} | links
        assert not any(path.is_dir() and path.name.startswith(".") for path in root.iterdir())
        if number % 2 == 0 and ending in CHECKED:
            for file in files:  # a checksum was right
                assert file.read_bytes() == FILES[str(file.relative_to(root))]
        assert path.read_bytes() == content
    assert tree(outside) == {}
    assert not (tmp_path / "evil").exists()
    assert not [message for message in messages if "\n" in message]
    assert len(messages) > 120
    assert unpacked > 30


def test_a_stop_leaves_nothing_for_ever(tmp_path):
    path = put(tmp_path, tar(FILES.items()), ".tar")
    left = tmp_path / ".partial-killed-x.tar"  # as a kill leaves it
    left.mkdir()

    def stop(*_):
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        unpack(path, tmp_path, WANTED, stop)
    assert tree(tmp_path) == {}
    assert not left.exists()
    assert len(unpack(path, tmp_path, WANTED)) == 2
