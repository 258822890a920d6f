// A config as YAML, for `rookery submit --config`.

const PLAIN = /^[A-Za-z_./@][A-Za-z0-9_./@:-]*$/;
const WORDS = /^(true|false|yes|no|on|off|null|y|n|~)$/i;

export function yamlOf(value: unknown, indent = ''): string {
  const entries = Object.entries(value as Record<string, unknown>);
  return entries
    .map(([key, part]) => {
      const name = scalar(key);
      if (isObject(part)) {
        return Object.keys(part).length ? `${indent}${name}:\n${yamlOf(part, `${indent}  `)}` : `${indent}${name}: {}\n`;
      }
      return `${indent}${name}: ${flow(part)}\n`;
    })
    .join('');
}

/** On one line: lists, and what is in them. */
function flow(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(flow).join(', ')}]`;
  if (isObject(value)) {
    return `{${Object.entries(value).map(([key, part]) => `${scalar(key)}: ${flow(part)}`).join(', ')}}`;
  }
  return scalar(value);
}

function scalar(value: unknown): string {
  if (typeof value === 'number') return number(value);
  if (typeof value !== 'string') return String(value);
  const isPlain = PLAIN.test(value) && !WORDS.test(value) && !value.endsWith(':');
  return isPlain ? value : JSON.stringify(value);
}

/** YAML 1.1 takes 1e-7 for a text: it wants a point and a sign. */
function number(value: number): string {
  const text = String(value);
  const found = /^(-?\d+)(\.\d+)?e([+-]?)(\d+)$/.exec(text);
  return found ? `${found[1]}${found[2] ?? '.0'}e${found[3] || '+'}${found[4]}` : text;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}
