// A run's ladder as the server tells it, and the names of its players.

export interface Rated {
  rank: number;
  player: string;
  mu: number;
  low: number;
  high: number;
  uncertainty: number;
  games: number;
  wins: number;
  draws: number;
  losses: number;
}
export interface Met {
  wins: number;
  draws: number;
  losses: number;
  games: number;
}
export interface Ladder {
  players: Rated[];
  payoff: { players: string[]; records: (Met | null)[][] };
}
export interface Snapshot {
  name: string;
  policy: string;
  number: number; // updates made before it
  time_s: number | null; // null: not known
}

const NAME = /^(.+)@(\d+)(\/greedy)?$/;
const FILE = /^snapshots\/(.+)-\d{6}-(\d{10})\//;

/** main@340, and main@340/greedy, which is the same weights; null: another kind of player */
export function snapshotOf(player: string): Snapshot | null {
  const found = NAME.exec(player);
  if (!found?.[1]) return null;
  const [policy, number] = [found[1], Number(found[2])];
  return { name: `${policy}@${number}`, policy, number, time_s: null };
}

/** By the run's files: also those that have not played yet, or have left the league. */
export function snapshotsIn(artifacts: { path: string; modified_s: number }[]): Snapshot[] {
  return artifacts.flatMap(({ path, modified_s }) => {
    const found = FILE.exec(path);
    if (!found?.[1]) return [];
    const [policy, number] = [found[1], Number(found[2])];
    return [{ name: `${policy}@${number}`, policy, number, time_s: modified_s }];
  });
}

/** The name under which a match knows a player of the run's ladder. */
export function inMatch(player: string, run: string, policy: string): string {
  if (player === policy) return run;
  const snapshot = snapshotOf(player);
  return snapshot?.policy === policy ? `${run}@${snapshot.number}` : player;
}

export function share(met: Met): number {
  return (met.wins + met.draws / 2) / (met.wins + met.draws + met.losses || 1);
}
