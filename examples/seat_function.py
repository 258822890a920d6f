"""Say who sits where with a function: the policy changes sides from one game to the next.

A draw is made for each seat by itself, so it cannot say "one of the two is `main`"; a function can.
One of this process goes with the inline launcher; for processes, name it "module:function".
"""

import rookery

GAME = "pettingzoo:tictactoe_v3"
SIDES = ("player_1", "player_2")

run = rookery.train(
    GAME,
    seat_map=lambda seat, episode: "main" if seat == SIDES[episode % 2] else "script:random",
    launcher="inline",
    steps=4_000,
    config={"actors": {"envs_per_actor": 8}},
)

result = rookery.match(GAME, run.id, "script:random", games=40)
low, high = result["interval"]
for row in run.ladder():
    print(f"{row['rank']}. {row['player']}: rating {row['mu']:.1f}")
print(f"{run.id}: mean return {result['points']:.2f} points a game, {low:.2f} to {high:.2f}")
