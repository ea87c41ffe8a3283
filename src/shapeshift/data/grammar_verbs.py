"""The verbs of the built-in grammar.

An entry of a table reads: English base, past, participle if it differs from the past, `+` and
what follows the verb; then German infinitive (`auf|machen`: separable prefix), third person,
preterite, participle (`ist gegangen`: perfect with sein). `*` marks a verb of state, which has no
perfect here; `!` one that takes no place; `€` something that one can do für somebody.
"""

from __future__ import annotations

from shapeshift.data.grammar_lexicon import (
    ANIMALS,
    BUILDINGS,
    CLOTHES,
    CONTAINERS,
    DEVICES,
    FOOD,
    NOUNS,
    PARTS,
    PERSONS,
    PLACES,
    ROOMS,
    TEXTS,
    THINGS,
    TOOLS,
    VEHICLES,
    add_s,
    preposition,
)
from shapeshift.data.grammar_tree import Case, Frame, Noun, Preposition, Sense, Verb

_PERSON = frozenset({Sense.PERSON})
_ANIMAL = frozenset({Sense.ANIMAL})
_LIVING = _PERSON | _ANIMAL
_THING = frozenset(noun.sense for noun in THINGS)
_IRREGULAR_THIRD = {"go": "goes", "have": "has", "do": "does"}
_IRREGULAR_FIRST = {"wissen": "weiß"}

_LIVING_NOUNS = (*PERSONS, *ANIMALS)
_CONCRETE = (*_LIVING_NOUNS, *THINGS)


def _german_past_plural(past: str) -> str:
    return past + "n" if past.endswith("e") else past + "en"


def _verb(
    entry: str,
    frame: Frame,
    subjects: frozenset[Sense],
    objects: tuple[Noun, ...],
    governed: Preposition | None,
) -> Verb:
    english, german = (side.split() for side in entry.split(":"))
    stative, for_someone = "*" in german, "€" in german
    placeless = "!" in german
    german = [word for word in german if word not in "*€!"]
    particle = english[english.index("+") + 1] if "+" in english else ""
    base, past, *rest = [word for word in english if word not in ("+", particle)]
    prefix, _, infinitive = german[0].rpartition("|")
    with_sein = german[3] == "ist"
    return Verb(
        base=base,
        third=_IRREGULAR_THIRD.get(base) or add_s(base),
        past=past,
        participle=rest[0] if rest else past,
        particle=particle,
        infinitive=infinitive,
        german_present=(_IRREGULAR_FIRST.get(infinitive, infinitive[:-1]), german[1], infinitive),
        german_past=(german[2], _german_past_plural(german[2])),
        german_participle=german[-1],
        prefix=prefix,
        with_sein=with_sein,
        frame=frame,
        subjects=subjects,
        objects=objects,
        preposition=governed,
        stative=stative,
        for_someone=for_someone,
        has_place=not (placeless or stative or frame is Frame.DIRECTION),
    )


def _verbs(
    table: str,
    frame: Frame,
    subjects: frozenset[Sense],
    objects: tuple[Noun, ...] = (),
    governed: Preposition | None = None,
) -> tuple[Verb, ...]:
    entries = table.replace("\n", ";").split(";")
    return tuple(
        _verb(entry, frame, subjects, objects, governed) for entry in entries if entry.strip()
    )


_INTRANSITIVE = (
    *_verbs(
        """sleep slept: schlafen schläft schlief geschlafen
        play played: spielen spielt spielte gespielt
        run ran run: laufen läuft lief ist gelaufen
        swim swam swum: schwimmen schwimmt schwamm ist geschwommen !
        wake woke woken + up: auf|wachen wacht wachte ist aufgewacht
        fall fell fallen + asleep: ein|schlafen schläft schlief ist eingeschlafen
        come came come + back: zurück|kommen kommt kam ist zurückgekommen !
        get got + up: auf|stehen steht stand ist aufgestanden !
        disappear disappeared: verschwinden verschwindet verschwand ist verschwunden""",
        Frame.INTRANSITIVE,
        _LIVING,
    ),
    *_verbs(
        """work worked: arbeiten arbeitet arbeitete gearbeitet
        laugh laughed: lachen lacht lachte gelacht; cry cried: weinen weint weinte geweint
        sing sang sung: singen singt sang gesungen; dance danced: tanzen tanzt tanzte getanzt
        sneeze sneezed: niesen niest nieste geniest; pray prayed: beten betet betete gebetet
        arrive arrived: an|kommen kommt kam ist angekommen
        depart departed: ab|reisen reist reiste ist abgereist !
        go went gone + out: aus|gehen geht ging ist ausgegangen !""",
        Frame.INTRANSITIVE,
        _PERSON,
    ),
    *_verbs(
        """fall fell fallen + down: herunter|fallen fällt fiel ist heruntergefallen
        burn burned: brennen brennt brannte gebrannt""",
        Frame.INTRANSITIVE,
        _THING,
    ),
)
SEE, *_SEEING = _verbs(
    """see saw seen: sehen sieht sah gesehen; hear heard: hören hört hörte gehört
    love loved: lieben liebt liebte geliebt *""",
    Frame.ACCUSATIVE,
    _LIVING,
    _LIVING_NOUNS,
)


def _accusative(table: str, objects: tuple[Noun, ...]) -> tuple[Verb, ...]:
    return _verbs(table, Frame.ACCUSATIVE, _PERSON, objects)


_ACCUSATIVE = (
    SEE,
    *_SEEING,
    *_verbs("find found: finden findet fand gefunden", Frame.ACCUSATIVE, _LIVING, _CONCRETE),
    *_verbs(
        "bite bit bitten: beißen beißt biss gebissen; chase chased: jagen jagt jagte gejagt",
        Frame.ACCUSATIVE,
        _ANIMAL,
        _LIVING_NOUNS,
    ),
    *_verbs("eat ate eaten: essen isst aß gegessen", Frame.ACCUSATIVE, _PERSON, FOOD),
    *_accusative(
        """look looked + for: suchen sucht suchte gesucht
        look looked + at: an|sehen sieht sah angesehen
        draw drew drawn: zeichnen zeichnet zeichnete gezeichnet €""",
        _CONCRETE,
    ),
    *_accusative(
        """know knew known: kennen kennt kannte gekannt *; ask asked: fragen fragt fragte gefragt
        meet met: treffen trifft traf getroffen; invite invited: ein|laden lädt lud eingeladen
        call called: an|rufen ruft rief angerufen; greet greeted: grüßen grüßt grüßte gegrüßt
        fetch fetched: ab|holen holt holte abgeholt
        marry married: heiraten heiratet heiratete geheiratet
        kiss kissed: küssen küsst küsste geküsst""",
        PERSONS,
    ),
    *_accusative("watch watched: beobachten beobachtet beobachtete beobachtet", _LIVING_NOUNS),
    *_accusative("visit visited: besuchen besucht besuchte besucht", (*PERSONS, *BUILDINGS)),
    *_accusative(
        """buy bought: kaufen kauft kaufte gekauft €
        sell sold: verkaufen verkauft verkaufte verkauft
        need needed: brauchen braucht brauchte gebraucht *
        have had: haben hat hatte gehabt *
        lose lost: verlieren verliert verlor verloren
        forget forgot forgotten: vergessen vergisst vergaß vergessen
        hide hid hidden: verstecken versteckt versteckte versteckt""",
        THINGS,
    ),
    *_accusative(
        """throw threw thrown + away: weg|werfen wirft warf weggeworfen
        pack packed: ein|packen packt packte eingepackt €
        bring brought + along: mit|bringen bringt brachte mitgebracht""",
        (*FOOD, *TEXTS, *CLOTHES, *TOOLS, *CONTAINERS),
    ),
    *_accusative(
        "cook cooked: kochen kocht kochte gekocht €",
        tuple(noun for noun in FOOD if noun.singular in ("soup", "potato", "egg")),
    ),
    *_accusative(
        "prepare prepared: vor|bereiten bereitet bereitete vorbereitet €",
        tuple(noun for noun in FOOD if noun.singular in ("soup", "salad", "cake")),
    ),
    *_accusative(
        """read read: lesen liest las gelesen
        write wrote written: schreiben schreibt schrieb geschrieben €
        understand understood: verstehen versteht verstand verstanden *
        translate translated: übersetzen übersetzt übersetzte übersetzt €""",
        TEXTS,
    ),
    *_accusative("wear wore worn: tragen trägt trug getragen *", CLOTHES),
    *_accusative("wash washed: waschen wäscht wusch gewaschen €", (*CLOTHES, *VEHICLES)),
    *_accusative(
        "repair repaired: reparieren repariert reparierte repariert €",
        (*VEHICLES, *DEVICES, *PARTS),
    ),
    *_accusative(
        """open opened: auf|machen macht machte aufgemacht
        close closed: zu|machen macht machte zugemacht""",
        (*CONTAINERS, *(noun for noun in PARTS if noun.singular in ("door", "window"))),
    ),
    *_accusative(
        "switch switched + on: ein|schalten schaltet schaltete eingeschaltet; "
        "switch switched + off: aus|schalten schaltet schaltete ausgeschaltet",
        DEVICES,
    ),
    *_accusative("tidy tidied: auf|räumen räumt räumte aufgeräumt", ROOMS),
    *_accusative("clean cleaned: putzen putzt putzte geputzt €", (*ROOMS, *PARTS, *VEHICLES)),
    *_accusative(
        "build built: bauen baut baute gebaut €",
        (
            *(
                noun
                for noun in NOUNS
                if noun.singular in ("house", "church", "ship", "table", "chair")
            ),
        ),
    ),
)
BELONG, *_ = _verbs(
    "belong belonged + to: gehören gehört gehörte gehört *",
    Frame.DATIVE,
    frozenset(Sense) - _LIVING,
    PERSONS,
)
_DATIVE = (
    BELONG,
    *_verbs(
        """help helped: helfen hilft half geholfen; follow followed: folgen folgt folgte ist gefolgt
        trust trusted: vertrauen vertraut vertraute vertraut""",
        Frame.DATIVE,
        _LIVING,
        _LIVING_NOUNS,
    ),
    *_verbs(
        """thank thanked: danken dankt dankte gedankt
        listen listened + to: zu|hören hört hörte zugehört
        answer answered: antworten antwortet antwortete geantwortet
        congratulate congratulated: gratulieren gratuliert gratulierte gratuliert
        forgive forgave forgiven: verzeihen verzeiht verzieh verziehen
        agree agreed + with: zu|stimmen stimmt stimmte zugestimmt""",
        Frame.DATIVE,
        _PERSON,
        PERSONS,
    ),
)
_DITRANSITIVE = (
    *_verbs(
        """give gave given: geben gibt gab gegeben; show showed shown: zeigen zeigt zeigte gezeigt
        send sent: schicken schickt schickte geschickt; lend lent: leihen leiht lieh geliehen
        bring brought: bringen bringt brachte gebracht""",
        Frame.DITRANSITIVE,
        _PERSON,
        (*TEXTS, *CLOTHES, *TOOLS, *CONTAINERS),
    ),
    *_verbs("offer offered: an|bieten bietet bot angeboten", Frame.DITRANSITIVE, _PERSON, FOOD),
)


def _oblique(
    entry: str, english: str, german: str, case: Case, objects: tuple[Noun, ...]
) -> tuple[Verb, ...]:
    return _verbs(entry, Frame.OBLIQUE, _PERSON, objects, preposition(english, german, case))


_OBLIQUE = (
    *_oblique(
        "wait waited: warten wartet wartete gewartet",
        "for", "auf", Case.ACCUSATIVE, (*PERSONS, *TEXTS, *VEHICLES),
    ),
    *_oblique(
        "look looked: auf|passen passt passte aufgepasst",
        "after", "auf", Case.ACCUSATIVE, _LIVING_NOUNS,
    ),
    *_oblique(
        "think thought: denken denkt dachte gedacht !",
        "of", "an", Case.ACCUSATIVE, (*_LIVING_NOUNS, *PLACES),
    ),
    *_oblique(
        "talk talked: reden redet redete geredet",
        "about", "über", Case.ACCUSATIVE, (*_LIVING_NOUNS, *TEXTS, *PLACES),
    ),
    *_oblique(
        "dream dreamed: träumen träumt träumte geträumt !",
        "of", "von", Case.DATIVE, (*_LIVING_NOUNS, *VEHICLES, *PLACES),
    ),
    *_oblique(
        "speak spoke spoken: sprechen spricht sprach gesprochen",
        "with", "mit", Case.DATIVE, PERSONS,
    ),
    *_oblique(
        "play played: spielen spielt spielte gespielt",
        "with", "mit", Case.DATIVE, _LIVING_NOUNS,
    ),
)  # fmt: skip
_DIRECTION = _verbs(
    """go went gone: gehen geht ging ist gegangen; run ran run: laufen läuft lief ist gelaufen
    drive drove driven: fahren fährt fuhr ist gefahren
    come came come: kommen kommt kam ist gekommen""",
    Frame.DIRECTION,
    _PERSON,
    (*BUILDINGS, *(noun for noun in NOUNS if noun.singular in ("doctor", "neighbour", "baker"))),
)
_CLAUSE = _verbs(
    """say said: sagen sagt sagte gesagt; know knew known: wissen weiß wusste gewusst *
    believe believed: glauben glaubt glaubte geglaubt *; hope hoped: hoffen hofft hoffte gehofft *
    think thought: denken denkt dachte gedacht; hear heard: hören hört hörte gehört
    see saw seen: sehen sieht sah gesehen; claim claimed: behaupten behauptet behauptete behauptet
    notice noticed: bemerken bemerkt bemerkte bemerkt
    forget forgot forgotten: vergessen vergisst vergaß vergessen
    explain explained: erklären erklärt erklärte erklärt
    fear feared: befürchten befürchtet befürchtete befürchtet *""",
    Frame.CLAUSE,
    _PERSON,
)
_DATIVE_CLAUSE = _verbs(
    """tell told: erzählen erzählt erzählte erzählt
    promise promised: versprechen verspricht versprach versprochen""",
    Frame.DATIVE_CLAUSE,
    _PERSON,
    PERSONS,
)
BE = Verb(
    base="be", third="is", past="was", participle="been", particle="", infinitive="sein",
    german_present=("bin", "ist", "sind"), german_past=("war", "waren"),
    german_participle="gewesen", prefix="", with_sein=True, frame=Frame.COPULA,
    subjects=frozenset(Sense), objects=(), preposition=None, stative=True, for_someone=False,
    has_place=False,
)  # fmt: skip
VERBS = (
    *_INTRANSITIVE, *_ACCUSATIVE, *_DATIVE, *_DITRANSITIVE, *_OBLIQUE, *_DIRECTION, *_CLAUSE,
    *_DATIVE_CLAUSE, BE,
)  # fmt: skip


def verbs_for(subject: Sense, frame: Frame) -> tuple[Verb, ...]:
    """Return the verbs of a frame whose subject may be of this semantic class."""
    return tuple(verb for verb in VERBS if verb.frame is frame and subject in verb.subjects)
