"""``python -m bench COMMAND``: the table of commands, and how errors end. A command's code is imported when it is called.

A mistake that the reader can mend is one message on standard error and exit code 2; a bug keeps its traceback.
"""

from __future__ import annotations

import argparse
import errno
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.suites import SUITES, Suite
from models import environment
from models.errors import ConfigError, UserError
from models.readers import nobody_reads


class Command(NamedTuple):
    """A row: what the command is for, how its arguments are declared, what runs it, and whether it goes on where it was stopped."""

    help: str
    add: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    goes_on: bool = False


def _options(parser: argparse.ArgumentParser) -> None:
    from bench.config import add_arguments

    add_arguments(parser)


def _run(arguments: argparse.Namespace) -> int:
    from bench.config import from_arguments
    from bench.rows import settings_suite
    from bench.run import report, run_suite, show

    config = from_arguments(arguments)
    folder = run_suite("settings", settings_suite(config), config)
    show(report(folder), folder)
    return 0 if any(record.ok for record in folder.records().values()) else 1


def _score_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--judge", default=argparse.SUPPRESS, help="judge model (folder or name), or 'exact'")
    parser.add_argument("--judge-endpoint", default=argparse.SUPPRESS, help="server of the judge")
    parser.add_argument("--prompts", default=argparse.SUPPRESS, help="prompt set of the judge")
    parser.add_argument("--similarity", action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help="judge captions too")


def _score(arguments: argparse.Namespace) -> int:
    from bench.folder import RunFolder
    from bench.run import report, score, show

    suite = str(RunFolder(arguments.run).manifest()["suite"])
    if suite in SUITES:
        remedy = f"give its own command again with another judge: python -m bench {suite} … --judge J; nothing is predicted again"
        raise ConfigError(f"this is a run of {suite}", where=str(arguments.run), remedy=remedy)
    changes = {k: v for k, v in vars(arguments).items() if k in ("judge", "judge_endpoint", "prompts", "similarity")}
    folder = score(arguments.run, changes)
    show(report(folder), folder)
    return 0


def _report_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, nargs="?", help="a run folder; the latest one when left out")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where run folders are [runs]")
    parser.add_argument(
        "--judge", default=None, metavar="HASH8", help="of several judges, this one (the end of its file's name in scores/)"
    )


def _report(arguments: argparse.Namespace) -> int:
    from bench.folder import RunFolder, latest
    from bench.run import report, show

    folder = RunFolder(arguments.run) if arguments.run else latest(arguments.runs)
    suite = SUITES.get(str(folder.manifest()["suite"]))
    if suite is not None:
        suite.load().report(folder, arguments.judge)
        return 0
    show(report(folder, arguments.judge), folder)
    return 0


def _world_options(parser: argparse.ArgumentParser) -> None:
    from bench.world.cli import add_arguments

    add_arguments(parser)


def _world(arguments: argparse.Namespace) -> int:
    from bench.world.cli import run

    return run(arguments)


def _ablation_options(parser: argparse.ArgumentParser) -> None:
    from bench.ablations import add_arguments

    add_arguments(parser)


def _ablations(arguments: argparse.Namespace) -> int:
    from bench.ablations import run

    return run(arguments)


def _agreement_options(parser: argparse.ArgumentParser) -> None:
    from bench.agreement import add_arguments

    add_arguments(parser)


def _agreement(arguments: argparse.Namespace) -> int:
    from bench.agreement import run

    return run(arguments)


def _profile_options(parser: argparse.ArgumentParser) -> None:
    from bench.profile.cli import add_arguments

    add_arguments(parser)


def _profile(arguments: argparse.Namespace) -> int:
    from bench.profile.cli import run

    return run(arguments)


def _speed_options(parser: argparse.ArgumentParser) -> None:
    from bench.speed.cli import add_arguments

    add_arguments(parser)


def _speed(arguments: argparse.Namespace) -> int:
    from bench.speed.cli import run

    return run(arguments)


def _compare_options(parser: argparse.ArgumentParser) -> None:
    from bench.compare import add_arguments

    add_arguments(parser)


def _compare(arguments: argparse.Namespace) -> int:
    from bench.compare import run

    return run(arguments)


def _train_options(parser: argparse.ArgumentParser) -> None:
    from bench.tiny.cli import add_arguments

    add_arguments(parser)


def _train(arguments: argparse.Namespace) -> int:
    from bench.tiny.cli import run

    return run(arguments)


def _eval_options(parser: argparse.ArgumentParser) -> None:
    from bench.tiny.cli import add_eval_arguments

    add_eval_arguments(parser)


def _eval(arguments: argparse.Namespace) -> int:
    from bench.tiny.cli import run_eval

    return run_eval(arguments)


def _ask_options(parser: argparse.ArgumentParser) -> None:
    from bench.cuem.ask import add_arguments

    add_arguments(parser)


def _ask(arguments: argparse.Namespace) -> int:
    from bench.cuem.ask import run

    return run(arguments)


def _suite(suite: Suite) -> Command:
    return Command(suite.help, lambda parser: suite.load().add_arguments(parser), lambda arguments: int(suite.load().run(arguments)), True)


def _bundle_options(parser: argparse.ArgumentParser) -> None:
    from bench.sealed.cli import add_arguments

    add_arguments(parser)


def _bundle(arguments: argparse.Namespace) -> int:
    from bench.sealed.cli import run

    return run(arguments)


def _unpacker_options(parser: argparse.ArgumentParser) -> None:
    from bench.sealed.unpacker.cli import add_arguments

    add_arguments(parser)


def _unbundle(arguments: argparse.Namespace) -> int:
    from bench.sealed.unpacker.cli import run

    return run(arguments)


def _verify(arguments: argparse.Namespace) -> int:
    from bench.sealed.unpacker.cli import run

    arguments.verify = True
    return run(arguments)


def _doctor_options(parser: argparse.ArgumentParser) -> None:
    from bench.doctor.cli import add_arguments

    add_arguments(parser)


def _doctor(arguments: argparse.Namespace) -> int:
    from bench.doctor.cli import run

    return run(arguments)


def _offline_options(parser: argparse.ArgumentParser) -> None:
    from bench.offline.cli import add_arguments

    add_arguments(parser)


def _offline(arguments: argparse.Namespace) -> int:
    from bench.offline.cli import run

    return run(arguments)


COMMANDS: Mapping[str, Command] = {
    "run": Command("predict, judge and report, in the settings asked for", _options, _run, True),
    "score": Command("judge a run again, without predicting again", _score_options, _score, True),
    "report": Command("write the report of a run again", _report_options, _report),
    "world": Command("make the sample world", _world_options, _world),
    "ablations": Command("the paper's ablations as one grid (Tables 5, 17, 19, Figure 6)", _ablation_options, _ablations, True),
    "agreement": Command("how often a judge agrees with labelled verdicts (Table 16)", _agreement_options, _agreement),
    "train-tiny": Command("train the embedded model from nothing", _train_options, _train, True),
    "eval-tiny": Command("score the embedded model, skill by skill, on worlds it has not seen", _eval_options, _eval),
    "bundle": Command("everything for a machine without a network, in one verified folder", _bundle_options, _bundle, True),
    "unbundle": Command("check a bundle, copy it and install from it", _unpacker_options, _unbundle),
    "verify": Command("check every byte of a bundle, or of what was unpacked", _unpacker_options, _verify),
    "doctor": Command("what works on this machine and what does not, each line with its remedy", _doctor_options, _doctor),
    "test-offline": Command("run everything with loopback only, and prove that nothing leaves", _offline_options, _offline),
    "profile": Command("latency and throughput of a setting's agent rounds at rising concurrency (Table 18)", _profile_options, _profile),
    "speed": Command("what a run costs beside its model: the stack's own ratios, each beside its target", _speed_options, _speed),
    "ask": Command("one question about a picture, over the sample world unless other collections are named", _ask_options, _ask),
    "compare": Command("two runs, question by question", _compare_options, _compare),
    **{name: _suite(suite) for name, suite in SUITES.items()},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses, runs, and turns errors into exit codes: 0 done, 1 when every sample failed, 2 a mistake that can be mended, 130 Ctrl-C."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m bench", description="The knowledge-graph benchmark of MH-MMKG, on any model.")
    chosen = next((word for word in given if not word.startswith("-")), "")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        sub = commands.add_parser(name, help=command.help, description=command.help, allow_abbrev=False)
        if name == chosen:  # the others' options would import what they need
            command.add(sub)
    parsed = parser.parse_args(given)
    try:
        code = COMMANDS[parsed.command].run(parsed)
        sys.stdout.flush()  # here, where a reader that has left can still be told from a fault
        return code
    except KeyboardInterrupt:
        kept = "what came back is kept. Go on with" if COMMANDS[parsed.command].goes_on else "nothing half-done is left. From the start"
        print(f"\nstopped; {kept}: python -m bench {shlex.join(given)}", file=sys.stderr)
        return 130
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `… | head`
        if not nobody_reads():
            raise
        return 0
    except OSError as error:
        if error.errno not in PLACES:
            raise
        print(
            f"error: {error.filename or 'disk'}: {error.strerror} — make room or make it writable, then run the same command again",
            file=sys.stderr,
        )
        return 2
    except Exception as error:
        if all(base.__module__ != "video.errors" for base in type(error).__mro__):  # a bug; VideoError is not imported for this
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2


# What is the matter with a place, and no bug.
PLACES = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE),
        *(errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EMFILE, errno.ENFILE),
    }
)


if __name__ == "__main__":
    environment.apply()
    sys.exit(main())
