// Light, dark, or as the system has it. Charts draw on canvas, so they are told of every change.

type Choice = 'auto' | 'light' | 'dark';

const KEY = 'rookery.theme';
const ORDER: Choice[] = ['auto', 'light', 'dark'];

class Theme {
  choice = $state<Choice>('auto');
  version = $state(0); // grows whenever colours change

  constructor() {
    const kept = localStorage.getItem(KEY) as Choice | null;
    if (kept && ORDER.includes(kept)) this.choice = kept;
    this.#apply();
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.version++);
  }

  next(): void {
    this.choice = ORDER[(ORDER.indexOf(this.choice) + 1) % ORDER.length] ?? 'auto';
    localStorage.setItem(KEY, this.choice);
    this.#apply();
  }

  #apply(): void {
    document.documentElement.dataset.theme = this.choice;
    this.version++;
  }
}

export const theme = new Theme();

const known = new Map<string, string>();
let knownVersion = -1;

/** A colour of the style sheet, as canvas takes it. */
export function colour(name: string): string {
  if (knownVersion !== theme.version) {
    knownVersion = theme.version;
    known.clear();
  }
  const kept = known.get(name);
  if (kept !== undefined) return kept;
  const probe = document.createElement('span');
  probe.style.color = `var(${name})`;
  probe.hidden = true;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  known.set(name, found);
  return found;
}

const RUN_COLOURS = ['--run-1', '--run-2', '--run-3', '--run-4', '--run-5', '--run-6', '--run-7', '--run-8'];

/** Of the n-th run on a chart. */
export function runColour(n: number): string {
  return RUN_COLOURS[n % RUN_COLOURS.length] ?? '--run-1';
}
