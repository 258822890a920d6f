// Numbers and times as people read them.

const UNITS: [number, string][] = [
  [1e12, 'T'],
  [1e9, 'B'],
  [1e6, 'M'],
  [1e3, 'k'],
];

/** 1234567 -> 1.23M */
export function compact(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return '–';
  for (const [size, unit] of UNITS) {
    if (Math.abs(value) >= size) return `${trim((value / size).toPrecision(3))}${unit}`;
  }
  return Number.isInteger(value) ? String(value) : trim(value.toPrecision(3));
}

export function whole(value: number | null | undefined): string {
  return value == null ? '–' : Math.round(value).toLocaleString('en');
}

/** A metric's value, small ones too: 0.000123 -> 1.23e-4 */
export function precise(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size !== 0 && size < 1e-3) return value.toExponential(2).replace(/\.?0+e/, 'e');
  if (size >= 1e4) return compact(value);
  if (size >= 100) return trim(value.toFixed(1));
  return trim(value.toPrecision(4));
}

/** 1536 -> 1.5 kB */
export function bytes(count: number | null | undefined): string {
  if (count == null) return '–';
  const unit = ['B', 'kB', 'MB', 'GB', 'TB'];
  const power = Math.min(4, Math.floor(Math.log(Math.max(1, count)) / Math.log(1000)));
  return `${trim((count / 1000 ** power).toPrecision(power ? 3 : 4))} ${unit[power]}`;
}

export function ago(time_s: number, now_s = Date.now() / 1000): string {
  const seconds = Math.max(0, now_s - time_s);
  return seconds < 10 ? 'now' : `${duration(seconds)} ago`;
}

/** 3725 -> 1 h 2 min */
export function duration(seconds: number): string {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) {
    const minutes = Math.floor((seconds % 3600) / 60);
    return `${Math.floor(seconds / 3600)} h${minutes ? ` ${minutes} min` : ''}`;
  }
  const days = Math.floor(seconds / 86_400);
  return `${days} day${days === 1 ? '' : 's'}`;
}

/** 5400 -> 1 h 30 min, and nothing is left out */
export function span(seconds: number): string {
  if (seconds < 60) return `${precise(seconds)} s`;
  const parts: [number, string][] = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor((seconds % 86_400) / 3600), 'h'],
    [Math.floor((seconds % 3600) / 60), 'min'],
    [seconds % 60, 's'],
  ];
  return parts.flatMap(([count, unit]) => (count ? `${precise(count)} ${unit}` : [])).join(' ');
}

export function clock(time_s: number): string {
  const date = new Date(time_s * 1000);
  const time = date.toLocaleTimeString('en-GB');
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? time : `${date.toLocaleDateString('en-CA')} ${time}`;
}

/** learning_rate -> Learning rate */
export function label(key: string): string {
  const words = key.replaceAll('_', ' ');
  return words.charAt(0).toUpperCase() + words.slice(1);
}

export function plural(count: number, noun: string): string {
  return `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : 's'}`;
}

function trim(text: string): string {
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}
