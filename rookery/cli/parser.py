"""Every verb with its arguments, and what carries it out."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

from rookery.cli import (
    bus,
    catalogue,
    config,
    evaluate,
    processes,
    runs,
    steer,
    sweep,
    tokens,
    train,
)
from rookery.cli.options import (
    SCOPES,
    UNASKED,
    Parser,
    add_bounds,
    add_change,
    add_common,
    add_config,
    add_labels,
    add_launcher,
    add_query,
    add_ray_address,
    add_server,
    integer,
    positive,
)

EPILOG = """\
examples:
  rookery train CartPole-v1 --until-return 475
  rookery train LunarLander-v3 --actors 2 --envs-per-actor 64 --steps 2_000_000 --seed 1
  rookery train FrozenLake-v1 --env.is_slippery=false
  rookery train --config examples/pendulum.yaml --set algorithm.learning_rate=3e-4
  rookery resume last
  rookery eval last --episodes 100
  rookery plot last --out curve.png
  rookery match pgx:connect_four last script:random --games 200
  rookery ladder last --payoff
  rookery sweep CartPole-v1 --search algorithm.learning_rate=log:1e-5..1e-2 --trials 20
  rookery seats last player_1=script:random
  rookery bus tail metrics.training --follow
  rookery serve
  rookery submit CartPole-v1 --until-return 475
  rookery pause last
  rookery set last learning_rate=1e-4 --reason "it diverges"

RUN is an id, a unique prefix of one, `last`, or a name that only one run has. Runs live under
./runs or $ROOKERY_HOME, or, with --server URL or $ROOKERY_SERVER, at a server.
"""

VERSION = version("rookery")
Verb = Callable[[argparse.Namespace, float], int]


class Commands:
    """The parser, as verbs are added to it."""

    def __init__(self) -> None:
        self.parser = Parser(
            prog="rookery",
            description="Train agents: actors play, a learner trains, every step is accounted for.",
            epilog=EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.parser.add_argument("--version", action="version", version=f"rookery {VERSION}")
        self.hidden: list[str] = []  # typed by launchers and servers, not by people
        self._verbs = self.parser.add_subparsers(
            title="commands", metavar="COMMAND", parser_class=Parser
        )

    @property
    def names(self) -> list[str]:
        return list(self._verbs.choices)

    def verb(
        self,
        name: str,
        function: Verb,
        help_text: str,
        server: bool = False,
        run: bool = False,
        listed: bool = True,
        below: Any = None,
        prog: str | None = None,
    ) -> argparse.ArgumentParser:
        """`server`: whether it may go through one; `run`: whether it takes a RUN; `below`: the
        group that it is a second word of; `prog`: how it is typed, if not by its name."""
        shown: dict[str, Any] = {"help": help_text} if listed else {}
        shown |= {"prog": prog} if prog is not None else {}
        parser: Parser = (below or self._verbs).add_parser(name, description=help_text, **shown)
        if not listed and below is None:
            self.hidden.append(name)
        if below is None:
            parser.set_defaults(name=name)
        parser.set_defaults(verb=function, takes_server=server, parser=parser)
        add_common(parser)
        if server:
            add_server(parser)
        if run:
            parser.add_argument("run", metavar="RUN")
        return parser

    def group(
        self, parser: argparse.ArgumentParser, metavar: str
    ) -> Callable[..., argparse.ArgumentParser]:
        """Adds second words to a verb, like `runs list`."""
        below = parser.add_subparsers(metavar=metavar, parser_class=Parser)
        return partial(self.verb, below=below)


def all_commands() -> Commands:
    commands = Commands()
    _training(commands)
    _sweeping(commands)
    _steering(commands)
    _serving(commands)
    _playing(commands)
    _looking(commands)
    _naming(commands)
    _working(commands)
    return commands


def _training(commands: Commands) -> None:
    text = "train a policy, from nothing or from a config file"
    new = commands.verb("train", train.train, text, server=True)
    add_config(new)
    add_labels(new)
    _add_seeds(new)
    text = "a new run that begins where another one was, with changes"
    fork = commands.verb("fork", train.train, text, server=True)
    add_config(fork, is_fork=True)
    add_labels(fork)
    _add_seeds(fork)
    text = "go on with a run from its newest checkpoint"
    resume = commands.verb("resume", train.resume, text, server=True, run=True)
    add_bounds(resume)
    add_ray_address(resume)
    add_change(resume)
    text = "train a new run on what another one has recorded"
    replay = commands.verb("replay", train.replay, text, run=True)
    replay.add_argument("--into", required=True, metavar="NEW", help="name of the new run")
    replay.add_argument("--from-offset", default="", metavar="N[,N]", help="in `experiences`")
    replay.add_argument("--passes", type=positive, default=1, metavar="N", help="over the log")
    replay.add_argument("--seed", type=integer, metavar="N")


def _add_seeds(parser: argparse.ArgumentParser) -> None:
    text = "so many runs that differ in their seed, as one group with one aggregate"
    parser.add_argument("--seeds", type=positive, metavar="N", help=text)


def _sweeping(commands: Commands) -> None:
    """`rookery sweep ENVIRONMENT` is `rookery sweep new ENVIRONMENT`: see `second_word`."""
    text = "search for a good config: many runs, each judged by fresh episodes"
    family = commands.verb("sweep", sweep.sweep_list, text)
    word = commands.group(family, "|".join(sweep.WORDS))
    new = word("new", sweep.sweep_new, text, listed=False, prog="rookery sweep")
    new.epilog = "second words: rookery sweep list, and show, stop, resume or plot SWEEP"
    add_config(new)
    sweep.add_settings(new)
    word("list", sweep.sweep_list, "every sweep of this home")
    for name, verb, about in (
        ("show", sweep.sweep_show, "its trials, the best first, and what matters"),
        ("stop", sweep.sweep_stop, "stop it, each run after a checkpoint"),
        ("resume", sweep.sweep_resume, "go on with one that was stopped or interrupted"),
        ("plot", sweep.sweep_plot, "parallel coordinates and slices as a PNG"),
    ):
        below = word(name, verb, about)
        below.add_argument("sweep", metavar="SWEEP", help="an id, a unique prefix of one, or last")
        if name == "plot":
            below.add_argument("--out", default="sweep.png")
        if name == "show":
            below.add_argument("--best", metavar="FILE", help="write the best config there")


def _steering(commands: Commands) -> None:
    """Changing runs that others carry."""
    text = "create a run and start it, carried by a server"
    submit = commands.verb("submit", steer.submit, text, server=True)
    add_config(submit)
    add_labels(submit)
    submit.add_argument("--no-start", action="store_true", help="only create it")
    add_change(submit)

    def change(name: str, help_text: str) -> argparse.ArgumentParser:
        found = commands.verb(name, steer.steer, help_text, server=True, run=True)
        add_change(found)
        return found

    change("start", "start a run, carried by a server")
    change("pause", "hold a run; its workers stay in memory")
    change("stop", "stop a run after a checkpoint")
    scale = change("scale", "change how many actors play, or take the learner away")
    scale.add_argument("--actors", type=integer, metavar="N", help="actor processes")
    scale.add_argument("--learner", type=integer, metavar="N")
    add_labels(change("label", "give a run a name, tags (--tag '': none) or notes"))
    values = change("set", "change hyperparameters while a run goes on")
    values.add_argument("values", metavar="KEY=VALUE", nargs="+")
    change("checkpoint", "save a checkpoint of a run now")
    text = "seat other players in a run, from the next episode on"
    seats = commands.verb("seats", steer.seats, text, server=True, run=True)
    seats.add_argument("seats", metavar="SEAT=PLAYER", nargs="+")
    add_change(seats)
    text = "who changed what, why, and what became of it"
    audit = commands.verb("audit", runs.audit, text, server=True)
    audit.add_argument("run", metavar="RUN", nargs="?", help="default: all")
    audit.add_argument("-n", dest="count", type=positive, default=50, metavar="N", help="newest")


def _serving(commands: Commands) -> None:
    text = "carry the runs of this home, and answer over HTTP: REST, a stream, MCP"
    serve = commands.verb("serve", processes.serve, text)
    serve.add_argument("--host", metavar="ADDRESS", help="to listen on; default: 127.0.0.1")
    serve.add_argument("--port", type=integer, metavar="N", help="0: any; default: 7860")
    serve.add_argument("--cpus", type=positive, metavar="N", help="that all runs share")
    add_launcher(serve)
    serve.add_argument(
        "--insecure-bind", action="store_true", help="listen beyond this machine without TLS"
    )
    mcp = commands.verb("mcp", processes.mcp, "serve MCP over standard input and output")
    mcp.add_argument("--scope", choices=SCOPES, default="operate", help="default: operate")
    text = "let others in to a server, or no more"
    family = commands.verb("tokens", tokens.tokens_list, text, server=True)
    word = commands.group(family, "create|list|revoke")
    create = word("create", tokens.tokens_create, "make a token", server=True)
    create.add_argument("--scope", choices=SCOPES, required=True)
    create.add_argument("--ttl", metavar="TIME", help="30m, 8h, 7d; default: until revoked")
    create.add_argument("--label", default="", metavar="TEXT", help="whose, or what for")
    word("list", tokens.tokens_list, "every token", server=True)
    revoke = word("revoke", tokens.tokens_revoke, "let it in no more", server=True)
    revoke.add_argument("id", metavar="ID")


def _playing(commands: Commands) -> None:
    text = "play fresh episodes with a run's newest checkpoint"
    episodes = commands.verb("eval", evaluate.evaluate, text, server=True, run=True)
    episodes.add_argument("--episodes", type=positive, default=100)
    episodes.add_argument("--seed", type=int, default=0, help="of the evaluation, not of the run")
    episodes.add_argument(
        "--player", default="policy", help="policy (default) or script:random, as a baseline"
    )
    text = "let two players meet, both ways round"
    match = commands.verb("match", evaluate.match, text, server=True)
    match.add_argument("environment", metavar="ENVIRONMENT")
    for side in ("a", "b"):
        match.add_argument(side, metavar=side.upper(), help="RUN, RUN@340, script:random ...")
    match.add_argument("--games", type=positive, default=100, metavar="N")
    match.add_argument("--seed", type=integer, default=0, metavar="N", help="of the match")
    match.add_argument(
        "--sampled", action="store_true", help="runs play by chance, not their likeliest action"
    )
    text = "ratings of everyone who played in a run's league"
    ladder = commands.verb("ladder", evaluate.ladder, text, run=True)
    ladder.add_argument("--payoff", action="store_true", help="also who beats whom")


def _looking(commands: Commands) -> None:
    text = "list, show or delete runs"
    family = commands.verb("runs", runs.runs_list, text, server=True)
    family.set_defaults(**UNASKED)
    word = commands.group(family, "list|show|delete")
    add_query(word("list", runs.runs_list, "every run with its state, or some", server=True))
    text = "one run: state, workers, balance, checkpoints"
    word("show", runs.runs_show, text, server=True, run=True)
    text = "remove a run that does not run"
    delete = word("delete", runs.runs_delete, text, server=True, run=True)
    add_change(delete)
    delete.add_argument("--yes", action="store_true", help="do not ask")
    text = "name the component that is stuck, and its last error"
    commands.verb("why", runs.why, text, server=True, run=True)
    plot = commands.verb("plot", runs.plot, "draw learning curves as a PNG")
    plot.add_argument("runs", metavar="RUN", nargs="+")
    plot.add_argument("--out", default="curve.png")
    plot.add_argument("--metric", default="mean_return_100")
    text = "look at the topics that workers talk over"
    family = commands.verb("bus", bus.topics, text)
    family.set_defaults(run="last")
    word = commands.group(family, "topics|tail|lag")
    text = "every topic: what it keeps, who writes and who reads it"
    topics = word("topics", bus.topics, text)
    text = "a topic's newest messages; of binary ones the headers"
    tail = word("tail", bus.tail, text)
    tail.add_argument("topic", metavar="TOPIC")
    tail.add_argument("-n", dest="count", type=positive, default=10, metavar="N")
    tail.add_argument("--follow", action="store_true", help="go on with what comes")
    text = "how far the learner is behind the end of `experiences`"
    lag = word("lag", bus.lag, text)
    for parser, default in ((topics, "last"), (tail, None), (lag, "last")):
        parser.add_argument("run", metavar="RUN", nargs="?", default=default, help="default: last")


def _naming(commands: Commands) -> None:
    """What a config can name, and what it comes to."""
    envs = commands.verb("envs", catalogue.envs, "environments that can be named")
    envs.add_argument("search", nargs="?", default="")
    commands.verb("algorithms", catalogue.algorithms, "algorithms with their options")
    commands.verb("players", catalogue.players, "kinds of players with their options")
    text = "show the config that a command line stands for"
    shown = commands.verb("config", config.config_show, text)
    shown.add_argument("action", choices=["show"])
    shown.add_argument("--schema", action="store_true", help="the JSON Schema instead")
    add_config(shown)


def _working(commands: Commands) -> None:
    """Workers in the foreground, and what launchers and servers start."""
    for name, help_text, listed in (
        ("actor", "join a run as one more actor, in the foreground", True),
        ("learner", "take over as the learner of a run, in the foreground", True),
        ("inline", "both of them, in turns", False),  # of a server or a sweep
    ):
        worker = commands.verb(name, processes.worker, help_text, run=True, listed=listed)
        worker.add_argument("--index", type=int, default=0, help=argparse.SUPPRESS)
        worker.add_argument("--incarnation", type=int, help=argparse.SUPPRESS)  # by a launcher
    text = "a learner that waits for its run"
    standby = commands.verb("standby", processes.standby, text, listed=False)
    standby.add_argument("--threads", type=int, default=1)
    text = "hold the line to a Ray cluster, for the owner of runs"
    driver = commands.verb("ray-driver", processes.ray_driver, text, listed=False)
    driver.add_argument("--line", type=int, required=True, metavar="N")
    text = "look at a config on standard input, for a server"
    commands.verb("prepare", processes.prepare, text, listed=False)
    text = "play for someone who watches, by orders on standard input, for a server"
    commands.verb("viewer", processes.viewer, text, listed=False)
    text = "an evaluation or a match, for the owner of a run"
    job = commands.verb("job", processes.job, text, run=True, listed=False)
    job.add_argument("--command", required=True, metavar="ID")
