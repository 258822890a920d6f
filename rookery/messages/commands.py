"""Commands: typed, idempotent, signed requests to change a run. People, scripts -> controller.

The docstrings and the descriptions of fields are what REST, MCP and the command line show.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rookery.messages.ids import Origin, new_id
from rookery.messages.json_records import JsonRecord


class _Command(JsonRecord, frozen=True, kw_only=True):
    run: str
    id: str = msgspec.field(default_factory=new_id)
    author: str = ""
    reason: str = ""
    origin: Origin = "local"  # "network": held to the allow-list of the home's owner


MOST_NAME, MOST_TAGS, MOST_TAG, MOST_NOTES = 100, 20, 50, 4000
# a list of them is written with commas between; what \s means differs between languages
TAG_PATTERN = r"^[^\s,\x00-\x20\x7f-\xa0\ufeff]+$"

Name = Annotated[str, Meta(max_length=MOST_NAME, description="for people; several may have one")]
Tag = Annotated[str, Meta(max_length=MOST_TAG, pattern=TAG_PATTERN)]
Tags = Annotated[
    list[Tag], Meta(max_length=MOST_TAGS, description="to find it by: words without spaces")
]
Notes = Annotated[str, Meta(max_length=MOST_NOTES, description="whatever is worth keeping")]
GROUP_PATTERN = r"^[^\s,\x00-\x20\x7f-\xa0\ufeff]*$"  # a tag, or nothing
Group = Annotated[
    str,
    Meta(
        max_length=MOST_TAG,
        pattern=GROUP_PATTERN,
        description="runs that belong together, like seeds of one config: a word without spaces",
    ),
]


class CreateRun(_Command, frozen=True, kw_only=True, tag="create_run"):
    """Create a run from a config."""

    config: dict[str, Any]  # {"config": RunConfig, "spec": what its environment looks like}
    name: Name = ""
    tags: Tags = msgspec.field(default_factory=list)
    notes: Notes = ""
    group: Group = ""


class LabelRun(_Command, frozen=True, kw_only=True, tag="label_run"):
    """Give a run a name, tags, notes or a group; what is left out stays as it is."""

    name: Name | None = None
    tags: Tags | None = None
    notes: Notes | None = None
    group: Group | None = None


class StartRun(_Command, frozen=True, kw_only=True, tag="start_run"):
    """Start a run; one that stopped goes on from its newest checkpoint."""


class PauseRun(_Command, frozen=True, kw_only=True, tag="pause_run"):
    """Hold playing and training while the workers stay in memory, so that it resumes at once."""


class ResumeRun(_Command, frozen=True, kw_only=True, tag="resume_run"):
    """Go on with a run that is paused or has stopped; with new bounds, beyond those it reached."""

    steps: (
        Annotated[int, Meta(ge=1, le=2**53, description="trained in all, since it was created")]
        | None
    ) = None
    minutes: Annotated[float, Meta(gt=0, description="of training in all")] | None = None
    until_return: (
        Annotated[float, Meta(description="mean of the last 100 episodes to stop at")] | None
    ) = None


class StopRun(_Command, frozen=True, kw_only=True, tag="stop_run"):
    """Stop a run after a checkpoint, and end its workers."""


class ScaleActors(_Command, frozen=True, kw_only=True, tag="scale_actors"):
    """Change how many actors play."""

    count: Annotated[int, Meta(ge=0, le=1024, description="actor processes; 0: nobody plays")]


class ScaleLearner(_Command, frozen=True, kw_only=True, tag="scale_learner"):
    """Change how many learners train together: they begin anew from a checkpoint. 0: nobody."""

    count: Annotated[int, Meta(ge=0, le=64, description="learner processes; 0: nobody trains")]


class SetHyperparameters(_Command, frozen=True, kw_only=True, tag="set_hyperparameters"):
    """Change hyperparameters while the run goes on, from the next update on."""

    values: Annotated[
        dict[str, float],
        Meta(
            min_length=1,
            max_length=64,
            description="by config key: algorithm.learning_rate, or of one policy "
            "policies.NAME.algorithm.learning_rate",
        ),
    ]


class SetSeatMap(_Command, frozen=True, kw_only=True, tag="set_seat_map"):
    """Seat other players, from each slot's next episode on."""

    seats: Annotated[
        dict[str, Any],
        Meta(min_length=1, max_length=64, description="seat or pattern -> player, as in a config"),
    ]


class SaveCheckpoint(_Command, frozen=True, kw_only=True, tag="save_checkpoint"):
    """Save a checkpoint now."""


class Evaluate(_Command, frozen=True, kw_only=True, tag="evaluate"):
    """Play fresh episodes with the newest checkpoint, greedy and sampled."""

    episodes: Annotated[int, Meta(ge=1, le=100_000, description="fresh episodes")] = 100
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1, description="of the evaluation")] = 0
    player: Annotated[
        str, Meta(min_length=1, max_length=200, description="policy, or script:random")
    ] = "policy"


class PlayMatch(_Command, frozen=True, kw_only=True, tag="play_match"):
    """Let two players meet in the run's environment, both ways round."""

    a: Annotated[
        str, Meta(min_length=1, max_length=200, description="RUN, RUN@340, script:random ...")
    ]
    b: Annotated[
        str, Meta(min_length=1, max_length=200, description="RUN, RUN@340, script:random ...")
    ]
    games: Annotated[int, Meta(ge=1, le=100_000, description="half each way round")] = 100
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1, description="of the match")] = 0
    sampled: Annotated[
        bool, Meta(description="runs play by chance, not their likeliest action")
    ] = False


class DeleteRun(_Command, frozen=True, kw_only=True, tag="delete_run"):
    """Forget a run that does not run, and remove its files for good."""


Command = (
    CreateRun
    | LabelRun
    | StartRun
    | PauseRun
    | ResumeRun
    | StopRun
    | ScaleActors
    | ScaleLearner
    | SetHyperparameters
    | SetSeatMap
    | SaveCheckpoint
    | Evaluate
    | PlayMatch
    | DeleteRun
)
Job = Evaluate | PlayMatch  # carried out by a process of its own, whose result is an event
