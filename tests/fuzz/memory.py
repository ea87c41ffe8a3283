"""Attention with little memory left, in a process of its own: the right numbers, or an error that a
caller can catch, and the right numbers once there is memory again; never a signal."""

from __future__ import annotations

import multiprocessing
import random
import resource
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from . import attend, kinds
from .compare import Case, Outcome, WrongResultError
from .kinds import InvalidCaseError

SIMPLEST: Case = attend.SIMPLEST | {"megabytes": 0}

REFUSED = (MemoryError, RuntimeError)

PATIENCE_S = 300.0


def draw(rng: random.Random) -> Case:
    case = attend.draw(rng) | {"threads": 1, "dropout": 0.0, "second": False}
    K = rng.choice((40, 100, 300, 512))
    case |= {"K": K, "Q": rng.choice((K, K, 1)), "B": rng.choice((1, 4)), "H": 2}
    case["B"] = 1 if K > 300 else case["B"]
    case |= {"kinds": kinds.draw(rng), "E": rng.choice((8, 16, 64))}
    if case["dtype"] in ("bfloat16", "autocast"):  # in which oneDNN's products end the process
        case["dtype"] = "float32"
    case["causal"] |= any(name == "xpos" for name, _ in case["kinds"])
    if any(name == "tupe" for name, _ in case["kinds"]):
        case["E"] = 16
    case["layouts"] = [rng.choice(("plain", "rows", "channels", "packed")) for _ in range(3)]
    return case | {"megabytes": rng.choice((0, 1, 2, 4, 8, 16, 32, 64))}


def run(case: Case) -> Outcome:
    """Run a case in another process; see `attend.run`."""
    context = multiprocessing.get_context("forkserver")  # forks from a process without threads
    # Checkpoints import the compiler, of which little memory would leave a half.
    context.set_forkserver_preload([__name__, "torch._dynamo"])
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_limited, args=(case, theirs))
    process.start()
    theirs.close()
    try:
        said = ours.recv() if ours.poll(PATIENCE_S) else ("hang", f"no answer in {PATIENCE_S} s")
    except EOFError:
        said = None
    if said is not None and said[0] == "hang":
        process.kill()
    process.join()
    if said is None:
        raise WrongResultError("signal", f"the process ended with {process.exitcode}")
    what, detail = said
    if what == "invalid":
        raise InvalidCaseError(detail)
    if what:
        raise WrongResultError(what, detail)
    return Outcome({}, {}, lambda seed: {})


def _limited(case: Case, results: Connection) -> None:
    torch.set_num_threads(1)
    what, detail = "", ""
    try:
        _check(case)
    except InvalidCaseError as error:
        what, detail = "invalid", str(error)
    except Exception as error:
        what, detail = getattr(error, "what", type(error).__name__), str(error)
    results.send((what, detail))


def _check(case: Case) -> None:
    case = SIMPLEST | case
    small = {"Q": min(case["Q"], 9), "K": min(case["K"], 9)}
    attend.Setup(case | small).call()  # loads what is needed
    setup = attend.Setup(case)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + (case["megabytes"] << 20)
    found = None
    resource.setrlimit(resource.RLIMIT_AS, (most, limits[1]))
    try:
        found = setup.call()
    except REFUSED:
        pass
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    try:
        again = setup.call()
    except RuntimeError as error:
        if "primitive" not in str(error):  # oneDNN never makes one again that it could not make
            raise
        return
    outcome = attend.compared(setup, again, None)
    outcome.check()
    if found is not None:
        replace(outcome, found=found).check()
