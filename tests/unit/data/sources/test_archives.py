"""Archives: what is wanted of them arrives whole; damaged and hostile ones change nothing."""

import bz2
import gzip
import io
import lzma
import random
import tarfile
import tracemalloc
from contextlib import suppress

import pytest

from shapeshift.data.sources import archives
from shapeshift.data.sources.archives import is_archive, unpack
from shapeshift.errors import ShapeshiftError

TEXT = b"".join(b"sentence %d\n" % number for number in range(2_000))
FILES = {"a.en": TEXT, "sub/b.en": b"two\n", "other/c": b"three\n"}
WANTED = {"a.en", "sub/b.en", "not/there"}
PACKED = {
    ".tar": bytes,
    ".tar.gz": gzip.compress,
    ".tar.bz2": bz2.compress,
    ".tar.xz": lzma.compress,
}


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


def put(folder, content, name="x.tar"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    return folder / name


def tree(folder):
    """Everything in a folder but archives and locks: links by their target, files by content."""
    return {
        str(path.relative_to(folder)): path.readlink() if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
        if not path.name.startswith((".x.tar", "x.tar"))
    }


@pytest.mark.parametrize("ending", PACKED)
def test_only_the_wanted_files_are_unpacked(ending, tmp_path):
    path = put(tmp_path, PACKED[ending](tar(FILES.items())), f"x{ending}")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "old").write_text("old")
    assert is_archive(path)
    assert unpack(path, tmp_path, WANTED) == [tmp_path / "a.en", tmp_path / "sub" / "b.en"]
    assert tree(tmp_path) == {"a.en": TEXT, "sub/b.en": b"two\n", "sub/old": b"old"}


@pytest.mark.parametrize(
    "damage", [lambda x: x[:-40], lambda x: x[:-5], lambda x: x[:-8] + bytes(8)]
)
@pytest.mark.parametrize("ending", [".tar.gz", ".tar.bz2", ".tar.xz"])
def test_a_damaged_archive_leaves_nothing(ending, damage, tmp_path):
    path = put(tmp_path, damage(PACKED[ending](tar(FILES.items()))), f"x{ending}")
    with pytest.raises(ShapeshiftError, match=r"x\.tar\.\w+: cannot be unpacked: .*damaged"):
        unpack(path, tmp_path, WANTED)
    assert tree(tmp_path) == {}
    assert not [x for x in tmp_path.iterdir() if x.is_dir()]


def test_a_damaged_header_is_not_taken_for_the_end(tmp_path):
    content = bytearray(tar(FILES.items()))
    content[content.index(b"sub/b.en") + 20] ^= 1
    with pytest.raises(ShapeshiftError, match="it ends without an end mark"):
        unpack(put(tmp_path, content), tmp_path, WANTED)
    assert tree(tmp_path) == {}


LINK, HARD, DEVICE, FIFO = (
    {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
    {"type": tarfile.LNKTYPE, "linkname": "other/c"},
    {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3},
    {"type": tarfile.FIFOTYPE},
)
SPARSE = {"pax_headers": {"GNU.sparse.map": f"0,4,{40 << 30},0", "GNU.sparse.size": str(40 << 30)}}


@pytest.mark.parametrize("member", [LINK, HARD, DEVICE, FIFO, SPARSE, {"type": tarfile.DIRTYPE}])
def test_a_wanted_member_is_a_plain_file(member, tmp_path):
    content = tar([*FILES.items(), ("not/there", member)], format=tarfile.PAX_FORMAT)
    with pytest.raises(ShapeshiftError, match="'not/there' is twice in it or not a plain file"):
        unpack(put(tmp_path, content), tmp_path, WANTED)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "sub/../../evil", ".git/config", "link"])
def test_what_nobody_asked_for_is_written_nowhere(name, tmp_path):
    root = tmp_path / "root"
    members = [*FILES.items(), (name, LINK if name == "link" else b"x")]
    unpack(put(root, tar(members)), root, WANTED)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")} == {
        *("root", "root/a.en", "root/sub", "root/sub/b.en", "root/x.tar", "root/.x.tar.lock")
    }


def test_nothing_is_written_through_a_link_or_over_what_is_there(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    path = put(root, tar(FILES.items()))
    (root / "sub").symlink_to(outside)
    with pytest.raises(ShapeshiftError, match=r"root/sub: is a link"):
        unpack(path, root, WANTED)
    (root / "sub").unlink()
    (root / "a.en").symlink_to(outside / "a.en")
    with pytest.raises(ShapeshiftError, match=r"a\.en: is in the way of a file to be unpacked"):
        unpack(path, root, WANTED)
    (root / "a.en").unlink()
    (root / ".partial-x.tar").symlink_to(outside)
    (outside / "precious").write_text("precious")
    unpack(path, root, WANTED)
    assert tree(outside) == {"precious": b"precious"}


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress])
def test_a_bomb_is_given_up(compress, tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "_MIN_LIMIT", 1 << 20)
    ending = {gzip.compress: ".tar.gz", lzma.compress: ".tar.xz", bz2.compress: ".tar.bz2"}[
        compress
    ]
    header = tarfile.TarInfo("zeros")
    header.size = 20 << 20
    content = compress(header.tobuf() + bytes(header.size) + tar(FILES.items()))
    with pytest.raises(ShapeshiftError, match="expands to more than"):
        unpack(put(tmp_path, content, f"x{ending}"), tmp_path, WANTED)
    assert tree(tmp_path) == {}


def test_a_long_header_takes_no_memory(tmp_path):
    header = tarfile.TarInfo("long")
    header.type, header.size = tarfile.XHDTYPE, 50 << 20
    path = put(tmp_path, gzip.compress(header.tobuf() + bytes(header.size)), "x.tar.gz")
    tracemalloc.start()
    try:
        with pytest.raises(ShapeshiftError, match="a header of 52,428,800 bytes"):
            unpack(path, tmp_path, WANTED)
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


def mutated(draw, content):
    """Flip, drop, repeat or insert some bytes; half of it within headers."""
    content = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 8])):
        place = draw.randrange(min(len(content), draw.choice([512, len(content)])))
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


def constructed(draw):
    """An archive of members that no honest one has, among those that are wanted."""
    names = [
        *(
            "../evil",
            "/tmp/evil",
            "a/../../evil",
            "..",
            ".",
            "",
            "a.en",
            "sub",
            "sub/b.en",
            "./a.en",
        ),
        *("d/" * 200 + "x", "n" * 5000, "sub/b.en/c", "\udcff\udcfe", "x.tar", ".partial-x.tar/1"),
    ]
    headers = [
        *(LINK, HARD, DEVICE, FIFO, SPARSE, {"type": tarfile.DIRTYPE}, {"type": b"Z"}),
        *({"size": 40 << 30}, {"size": -512}, {"type": tarfile.GNUTYPE_SPARSE, "size": 40 << 30}),
        *(
            {"type": tarfile.XHDTYPE, "size": 1 << 40},
            {"type": tarfile.GNUTYPE_LONGNAME, "size": 9},
        ),
        {"pax_headers": {"size": "-1", "path": "../evil"}},
        {"pax_headers": {"GNU.sparse.map": "x", "GNU.sparse.size": "y" * 50}},
        {"type": tarfile.LNKTYPE, "linkname": "../" * 9 + "evil"},
    ]
    members = [
        (draw.choice(names), draw.choice([*headers, draw.randbytes(draw.randrange(2000))]))
        for _ in range(draw.randrange(1, 6))
    ]
    members += draw.sample([*FILES.items()], draw.randrange(3))
    draw.shuffle(members)
    return tar(members, format=draw.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))


def test_a_thousand_damaged_and_hostile_archives(tmp_path):
    """Each is refused in one sentence, or its wanted files arrive; nothing else changes."""
    draw, outside, messages, unpacked = random.Random(1), tmp_path / "outside", [], 0
    outside.mkdir()
    whole = tar(FILES.items())
    for number in range(1_000):
        ending = draw.choice([*PACKED])
        content = constructed(draw) if number % 2 else whole
        if number % 4 == 2:
            content = mutated(draw, content)
        content = PACKED[ending](content)
        if number % 4 == 0:
            content = mutated(draw, content)
        root = tmp_path / f"root-{number}"
        path = put(root, content, f"x{ending}")
        (root / "sub").symlink_to(outside) if draw.random() < 0.2 else None
        try:
            files = unpack(path, root, WANTED)
            unpacked += 1
        except ShapeshiftError as error:
            files, messages = [], [*messages, str(error)]
        links = {"sub": outside} if (root / "sub").is_symlink() else {}
        assert tree(root) == {str(x.relative_to(root)): x.read_bytes() for x in files} | links
        assert not any(path.is_dir() and path.name.startswith(".") for path in root.iterdir())
        if number % 2 == 0 and ending != ".tar":
            for file in files:  # a checksum was right
                assert file.read_bytes() == FILES[str(file.relative_to(root))] or number % 4 == 2
        assert path.read_bytes() == content
    assert tree(outside) == {}
    assert not (tmp_path / "evil").exists()
    assert not [message for message in messages if "\n" in message]
    assert len(messages) > 500
    assert unpacked > 100


def test_a_missing_archive_is_one_sentence(tmp_path):
    with pytest.raises(ShapeshiftError, match=r"x\.tar: cannot be read: No such file"):
        unpack(tmp_path / "x.tar", tmp_path, WANTED)


def test_a_stop_leaves_nothing_for_ever(tmp_path):
    path = put(tmp_path, tar(FILES.items()))
    (tmp_path / ".partial-x.tar").mkdir()  # as a kill leaves it
    (tmp_path / ".partial-x.tar" / "1").write_text("half")

    def stop(*_):
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        unpack(path, tmp_path, WANTED, stop)
    assert tree(tmp_path) == {}
    assert len(unpack(path, tmp_path, WANTED)) == 2
    assert not (tmp_path / ".partial-x.tar").exists()
