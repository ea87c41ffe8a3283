"""The words of the built-in grammar.

Written for this project. Each English word has one German rendering in its context, so that the
German sentence is a function of the English one.

How the tables are written:

- noun: English; article, nominative, genitive (masculine and neuter only), plural.
- adjective: English, German; after a `/` the German stem, where endings change it (hoch/hoh).
"""

from __future__ import annotations

from shapeshift.data.grammar_tree import (
    Adjective,
    Adverb,
    Article,
    Case,
    Conjunction,
    Declension,
    Determiner,
    Gender,
    Modal,
    Noun,
    Preposition,
    Pronoun,
    ProperName,
    Sense,
    Tense,
)

_GENDERS = {"der": Gender.MASCULINE, "die": Gender.FEMININE, "das": Gender.NEUTER}
_IRREGULAR_PLURALS = {
    "man": "men", "woman": "women", "child": "children", "policeman": "policemen",
    "mouse": "mice", "wolf": "wolves", "knife": "knives", "scarf": "scarves",
    "potato": "potatoes",
}  # fmt: skip


def add_s(word: str) -> str:
    """Return the regular English plural of a noun or third person of a verb."""
    if word.endswith(("s", "sh", "ch", "x", "z")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def _noun(english: str, german: str, sense: Sense) -> Noun:
    article, nominative, *rest = german.split()
    gender = _GENDERS[article]
    plural = rest[-1]
    genitive = rest[0] if len(rest) == 2 else nominative
    # A masculine noun whose genitive ends in -n is weak: den Jungen, dem Jungen, des Jungen.
    weak = gender is Gender.MASCULINE and genitive.endswith("n")
    oblique = genitive if weak else nominative
    dative_plural = plural if plural.endswith(("n", "s")) else plural + "n"
    return Noun(
        singular=english,
        plural=_IRREGULAR_PLURALS.get(english) or add_s(english),
        gender=gender,
        forms=((nominative, oblique, oblique, genitive), (plural, plural, dative_plural, plural)),
        sense=sense,
    )


def _nouns(sense: Sense, table: str) -> tuple[Noun, ...]:
    entries = (entry.split(":") for entry in table.replace("\n", ";").split(";") if entry.strip())
    return tuple(_noun(english.strip(), german, sense) for english, german in entries)


PERSONS = _nouns(
    Sense.PERSON,
    """man: der Mann Mannes Männer; boy: der Junge Jungen Jungen; teacher: der Lehrer Lehrers Lehrer
    doctor: der Arzt Arztes Ärzte; student: der Student Studenten Studenten
    neighbour: der Nachbar Nachbarn Nachbarn; friend: der Freund Freundes Freunde
    brother: der Bruder Bruders Brüder; father: der Vater Vaters Väter
    son: der Sohn Sohnes Söhne; uncle: der Onkel Onkels Onkel; cook: der Koch Kochs Köche
    baker: der Bäcker Bäckers Bäcker; farmer: der Bauer Bauern Bauern
    policeman: der Polizist Polizisten Polizisten; king: der König Königs Könige
    actor: der Schauspieler Schauspielers Schauspieler; colleague: der Kollege Kollegen Kollegen
    customer: der Kunde Kunden Kunden; tourist: der Tourist Touristen Touristen
    guest: der Gast Gastes Gäste; grandfather: der Großvater Großvaters Großväter
    woman: die Frau Frauen; mother: die Mutter Mütter; sister: die Schwester Schwestern
    daughter: die Tochter Töchter; aunt: die Tante Tanten; queen: die Königin Königinnen
    nurse: die Krankenschwester Krankenschwestern; singer: die Sängerin Sängerinnen
    grandmother: die Großmutter Großmütter; child: das Kind Kindes Kinder
    girl: das Mädchen Mädchens Mädchen; baby: das Baby Babys Babys""",
)
ANIMALS = _nouns(
    Sense.ANIMAL,
    """dog: der Hund Hundes Hunde; bear: der Bär Bären Bären; lion: der Löwe Löwen Löwen
    monkey: der Affe Affen Affen; bird: der Vogel Vogels Vögel; rabbit: der Hase Hasen Hasen
    wolf: der Wolf Wolfes Wölfe; elephant: der Elefant Elefanten Elefanten; cat: die Katze Katzen
    mouse: die Maus Mäuse; cow: die Kuh Kühe; goat: die Ziege Ziegen; duck: die Ente Enten
    horse: das Pferd Pferdes Pferde; pig: das Schwein Schweins Schweine""",
)
FOOD = _nouns(
    Sense.FOOD,
    """apple: der Apfel Apfels Äpfel; cake: der Kuchen Kuchens Kuchen; soup: die Suppe Suppen
    potato: die Kartoffel Kartoffeln; banana: die Banane Bananen; pear: die Birne Birnen
    egg: das Ei Eis Eier; roll: das Brötchen Brötchens Brötchen; salad: der Salat Salats Salate""",
)
TEXTS = _nouns(
    Sense.TEXT,
    """letter: der Brief Briefes Briefe; novel: der Roman Romans Romane
    report: der Bericht Berichts Berichte; newspaper: die Zeitung Zeitungen
    story: die Geschichte Geschichten; magazine: die Zeitschrift Zeitschriften
    book: das Buch Buches Bücher; poem: das Gedicht Gedichts Gedichte""",
)
CLOTHES = _nouns(
    Sense.CLOTHING,
    """hat: der Hut Hutes Hüte; coat: der Mantel Mantels Mäntel; skirt: der Rock Rocks Röcke
    scarf: der Schal Schals Schals; jacket: die Jacke Jacken; cap: die Mütze Mützen
    shirt: das Hemd Hemdes Hemden; dress: das Kleid Kleides Kleider""",
)
TOOLS = _nouns(
    Sense.TOOL,
    """umbrella: der Regenschirm Regenschirms Regenschirme; key: der Schlüssel Schlüssels Schlüssel
    ball: der Ball Balles Bälle; chair: der Stuhl Stuhls Stühle; table: der Tisch Tisches Tische
    mirror: der Spiegel Spiegels Spiegel; cup: die Tasse Tassen; flower: die Blume Blumen
    guitar: die Gitarre Gitarren; knife: das Messer Messers Messer
    picture: das Bild Bildes Bilder; present: das Geschenk Geschenks Geschenke""",
)
DEVICES = _nouns(
    Sense.DEVICE,
    """computer: der Computer Computers Computer; lamp: die Lampe Lampen
    camera: die Kamera Kameras; radio: das Radio Radios Radios""",
)
CONTAINERS = _nouns(
    Sense.CONTAINER,
    """suitcase: der Koffer Koffers Koffer; bag: die Tasche Taschen; bottle: die Flasche Flaschen
    box: die Kiste Kisten; parcel: das Paket Pakets Pakete""",
)
VEHICLES = _nouns(
    Sense.VEHICLE,
    """bus: der Bus Busses Busse; train: der Zug Zuges Züge; car: das Auto Autos Autos
    bicycle: das Fahrrad Fahrrads Fahrräder; ship: das Schiff Schiffes Schiffe""",
)
BUILDINGS = _nouns(
    Sense.BUILDING,
    """station: der Bahnhof Bahnhofs Bahnhöfe; shop: der Laden Ladens Läden
    school: die Schule Schulen; church: die Kirche Kirchen; library: die Bibliothek Bibliotheken
    house: das Haus Hauses Häuser; hotel: das Hotel Hotels Hotels
    museum: das Museum Museums Museen; hospital: das Krankenhaus Krankenhauses Krankenhäuser
    theatre: das Theater Theaters Theater; castle: das Schloss Schlosses Schlösser
    restaurant: das Restaurant Restaurants Restaurants""",
)
ROOMS = _nouns(
    Sense.ROOM,
    "kitchen: die Küche Küchen; office: das Büro Büros Büros; cellar: der Keller Kellers Keller",
)
AREAS = _nouns(
    Sense.AREA,
    """garden: der Garten Gartens Gärten; park: der Park Parks Parks; forest: der Wald Waldes Wälder
    city: die Stadt Städte; village: das Dorf Dorfes Dörfer""",
)
PARTS = _nouns(
    Sense.PART,
    """balcony: der Balkon Balkons Balkone; door: die Tür Türen; roof: das Dach Daches Dächer
    window: das Fenster Fensters Fenster; tower: der Turm Turmes Türme""",
)
NOUNS = (
    *PERSONS, *ANIMALS, *FOOD, *TEXTS, *CLOTHES, *TOOLS, *DEVICES, *CONTAINERS, *VEHICLES,
    *BUILDINGS, *ROOMS, *AREAS, *PARTS,
)  # fmt: skip
THINGS = (*FOOD, *TEXTS, *CLOTHES, *TOOLS, *DEVICES, *CONTAINERS, *VEHICLES)
PLACES = (*BUILDINGS, *ROOMS, *AREAS)

_ALL = frozenset(Sense)
_LIVING = frozenset({Sense.PERSON, Sense.ANIMAL})
_PERSON = frozenset({Sense.PERSON})
_FOOD = frozenset({Sense.FOOD})
_TEXT = frozenset({Sense.TEXT})
_PLACE = frozenset({Sense.BUILDING, Sense.ROOM, Sense.AREA})
_GOODS = frozenset(
    {Sense.CLOTHING, Sense.TOOL, Sense.DEVICE, Sense.CONTAINER, Sense.VEHICLE, Sense.PART}
)
_INANIMATE = _ALL - _LIVING

# (rank, who may have the property, the adjectives): opinion, size, age, state, colour.
_ADJECTIVE_TABLE: tuple[tuple[int, frozenset[Sense], str], ...] = (
    (
        0,
        _PERSON,
        "friendly freundlich, clever klug, famous berühmt, generous großzügig, polite höflich",
    ),
    (0, _PERSON, "strict streng, nervous nervös, lazy faul, patient geduldig, curious neugierig"),
    (0, _LIVING, "brave mutig"),
    (0, frozenset({Sense.ANIMAL}), "wild wild, dangerous gefährlich, fast schnell"),
    (0, _FOOD, "delicious lecker, sweet süß"),
    (0, _TEXT, "interesting interessant, boring langweilig, important wichtig, funny lustig"),
    (0, _PLACE, "quiet ruhig, bright hell"),
    (0, _GOODS, "expensive teuer/teur, cheap billig, practical praktisch, strange seltsam"),
    (0, _PLACE | _GOODS, "beautiful schön"),
    (1, _ALL - _TEXT - {Sense.ROOM}, "big groß, small klein"),
    (1, _TEXT, "long lang, short kurz"),
    (1, frozenset({Sense.PART}), "high hoch/hoh"),
    (2, _ALL - _FOOD, "old alt"),
    (2, _LIVING, "young jung"),
    (2, _INANIMATE - _FOOD, "new neu"),
    (3, _LIVING, "tired müde/müd, sick krank, hungry hungrig, strong stark, healthy gesund"),
    (3, _PERSON, "happy glücklich, sad traurig, rich reich, poor arm"),
    (3, _FOOD, "fresh frisch, hot heiß, cold kalt, sour sauer/saur"),
    (3, _GOODS, "heavy schwer, clean sauber, dirty schmutzig"),
    (3, _PLACE | {Sense.PART}, "modern modern, dark dunkel/dunkl"),
    (4, _GOODS, "red rot, blue blau, green grün, yellow gelb"),
    (4, _GOODS | {Sense.ANIMAL}, "black schwarz, white weiß, brown braun, grey grau"),
)


def _adjectives() -> dict[Sense, tuple[Adjective, ...]]:
    by_sense: dict[Sense, list[Adjective]] = {sense: [] for sense in Sense}
    for rank, senses, entries in _ADJECTIVE_TABLE:
        for entry in entries.split(", "):
            english, german = entry.split()
            predicative, _, stem = german.partition("/")
            adjective = Adjective(english, predicative, stem or predicative, rank)
            for sense in senses:
                by_sense[sense].append(adjective)
    return {sense: tuple(adjectives) for sense, adjectives in by_sense.items()}


ADJECTIVES = _adjectives()

PERSON_NAMES = tuple(
    ProperName(name, name)
    for name in [
        "Anna",
        "Maria",
        "Julia",
        "Eva",
        "Clara",
        "Laura",
        "Peter",
        "Paul",
        "Martin",
        "Jan",
        "Tim",
        "David",
        "Simon",
        "Robert",
    ]
)
CITIES = tuple(
    ProperName(english, german or english)
    for english, _, german in (
        entry.partition("/")
        for entry in [
            "Berlin",
            "Hamburg",
            "Munich/München",
            "Vienna/Wien",
            "Cologne/Köln",
            "Leipzig",
            "Bremen",
            "Zurich/Zürich",
        ]
    )
)

I = Pronoun(("I", "me"), ("ich", "mich", "mir"), True, False)  # noqa: E741
HE = Pronoun(("he", "him"), ("er", "ihn", "ihm"), False, False)
SHE = Pronoun(("she", "her"), ("sie", "sie", "ihr"), False, False)
WE = Pronoun(("we", "us"), ("wir", "uns", "uns"), True, True)
THEY = Pronoun(("they", "them"), ("sie", "sie", "ihnen"), False, True)


def _possessive(english: str, stem: str) -> Determiner:
    return Determiner((english, english), Article.EIN, stem, Declension.MIXED, True)


def _plural_only(english: str, stem: str, article: Article, declension: Declension) -> Determiner:
    return Determiner((english, english), article, stem, declension, False)


BARE = Determiner(("", ""), Article.NONE, "", Declension.STRONG, False)
THE = Determiner(("the", "the"), Article.DER, "", Declension.WEAK, True)
THIS = Determiner(("this", "these"), Article.DIESER, "dies", Declension.WEAK, True)
A = Determiner(("a", ""), Article.EIN, "ein", Declension.MIXED, False)
NO = Determiner(("no", "no"), Article.EIN, "kein", Declension.MIXED, False)
EVERY = Determiner(("every", ""), Article.DIESER, "jed", Declension.WEAK, False)
ALL = _plural_only("all", "all", Article.DIESER, Declension.WEAK)
MANY = _plural_only("many", "viel", Article.DIESER, Declension.STRONG)
SOME = _plural_only("some", "einig", Article.DIESER, Declension.STRONG)
NUMERALS = tuple(
    _plural_only(english, german, Article.FIXED, Declension.STRONG)
    for english, german in (
        ("two", "zwei"), ("three", "drei"), ("four", "vier"), ("five", "fünf"), ("six", "sechs"),
        ("seven", "sieben"), ("eight", "acht"), ("nine", "neun"), ("ten", "zehn"),
    )
)  # fmt: skip
POSSESSIVES = tuple(
    _possessive(english, stem)
    for english, stem in (
        ("my", "mein"), ("his", "sein"), ("her", "ihr"), ("our", "unser"), ("their", "ihr"),
    )
)  # fmt: skip


def _adverb(english: str, german: str, *tenses: Tense) -> Adverb:
    return Adverb(english, german, frozenset(tenses), len(english.split()))


TIMES = (
    _adverb("today", "heute", Tense.PRESENT, Tense.PERFECT, Tense.FUTURE),
    _adverb("now", "jetzt", Tense.PRESENT),
    _adverb("every day", "jeden Tag", Tense.PRESENT, Tense.PAST),
    _adverb("every week", "jede Woche", Tense.PRESENT, Tense.PAST),
    _adverb("this week", "diese Woche", Tense.PERFECT, Tense.FUTURE),
    _adverb("this year", "dieses Jahr", Tense.PERFECT, Tense.FUTURE),
    _adverb("yesterday", "gestern", Tense.PAST),
    _adverb("last week", "letzte Woche", Tense.PAST),
    _adverb("last year", "letztes Jahr", Tense.PAST),
    _adverb("a year ago", "vor einem Jahr", Tense.PAST),
    _adverb("tomorrow", "morgen", Tense.FUTURE),
    _adverb("soon", "bald", Tense.FUTURE),
    _adverb("next week", "nächste Woche", Tense.FUTURE),
    _adverb("next year", "nächstes Jahr", Tense.FUTURE),
    _adverb("in the morning", "am Morgen", Tense.PRESENT, Tense.PAST, Tense.FUTURE),
    _adverb("in the evening", "am Abend", Tense.PRESENT, Tense.PAST, Tense.FUTURE),
    _adverb("on Monday", "am Montag", Tense.PAST, Tense.FUTURE),
    _adverb("on Friday", "am Freitag", Tense.PAST, Tense.FUTURE),
    _adverb("on Sunday", "am Sonntag", Tense.PAST, Tense.FUTURE),
)
NEVER = _adverb("never", "nie", Tense.PRESENT, Tense.PAST, Tense.PERFECT)
FREQUENCIES = (
    _adverb("often", "oft", Tense.PRESENT, Tense.PAST, Tense.PERFECT),
    _adverb("always", "immer", Tense.PRESENT, Tense.PAST, Tense.PERFECT),
    _adverb("sometimes", "manchmal", Tense.PRESENT, Tense.PAST),
    _adverb("rarely", "selten", Tense.PRESENT, Tense.PAST, Tense.PERFECT),
    NEVER,
)


def preposition(english: str, german: str, case: Case) -> Preposition:
    """Return a preposition entry."""
    return Preposition(english, german, case, len(english.split()))


IN = preposition("in", "in", Case.DATIVE)
AT_BUILDING = (
    preposition("in front of", "vor", Case.DATIVE),
    preposition("behind", "hinter", Case.DATIVE),
    preposition("next to", "neben", Case.DATIVE),
)
TO = preposition("to", "zu", Case.DATIVE)
TO_CITY = preposition("to", "nach", Case.DATIVE)
WITH = preposition("with", "mit", Case.DATIVE)
FROM = preposition("from", "aus", Case.DATIVE)
FOR = preposition("for", "für", Case.ACCUSATIVE)

AND = Conjunction("and", "und", "und")
BUT = Conjunction("but", "aber", "aber")
THAT = Conjunction("that", "dass", "dass")
ADVERBIALS = (
    Conjunction("because", "weil", "weil"),
    Conjunction("although", "obwohl", "obwohl"),
    Conjunction("while", "während", "während", simple=True),
    Conjunction("when", "wenn", "als", simple=True),
    Conjunction("if", "wenn", "wenn", simple=True, only_present=True),
    Conjunction("before", "bevor", "bevor", simple=True),
    Conjunction("until", "bis", "bis", simple=True),
)


def _modal(
    present: tuple[str, str], past: tuple[str, str], german: str, german_past: str = ""
) -> Modal:
    """Build a modal from English (affirmative, negated) and German forms. `|` parts the forms for
    I, he and they; one form stands for all three."""

    def forms(text: str) -> tuple[str, str, str]:
        first, *rest = text.split("|")
        return (first, rest[0], rest[1]) if rest else (first, first, first)

    english = {(Tense.PRESENT, negated): forms(present[negated]) for negated in (False, True)}
    german_forms = {Tense.PRESENT: forms(german)}
    if german_past:
        english |= {(Tense.PAST, negated): forms(past[negated]) for negated in (False, True)}
        german_forms[Tense.PAST] = forms(german_past)
    return Modal(english, german_forms)


MODALS = (
    _modal(("can", "cannot"), ("could", "could not"), "kann|kann|können", "konnte|konnte|konnten"),
    _modal(
        ("must", "do not have to|does not have to|do not have to"),
        ("had to", "did not have to"),
        "muss|muss|müssen",
        "musste|musste|mussten",
    ),
    _modal(
        ("want to|wants to|want to", "do not want to|does not want to|do not want to"),
        ("wanted to", "did not want to"),
        "will|will|wollen",
        "wollte|wollte|wollten",
    ),
    _modal(("should", "should not"), ("", ""), "sollte|sollte|sollten"),
    _modal(
        ("may", "may not"),
        (
            "was allowed to|was allowed to|were allowed to",
            "was not allowed to|was not allowed to|were not allowed to",
        ),
        "darf|darf|dürfen",
        "durfte|durfte|durften",
    ),
)
