/** Something in the larder. */
export interface Item {
  name: string;
  /** Grams, millilitres or, without a unit, pieces. */
  amount: number;
  unit?: 'g' | 'ml';
  /** The last day it is good, "2026-03-09"; without one it keeps. */
  until?: string;
}

const larger = { g: 'kg', ml: 'l' };

/** An amount as people write it: "750 g", "1.5 l", "6". */
export function amount({ amount, unit }: Item): string {
  if (!unit) return String(amount);
  return amount < 1000 ? `${amount} ${unit}` : `${amount / 1000} ${larger[unit]}`;
}

/** Reads what amount wrote; undefined: it is none. */
export function parseAmount(text: string): Pick<Item, 'amount' | 'unit'> | undefined {
  const parts = /^\s*(\d+(?:\.\d+)?)\s*(kg|g|l|ml)?\s*$/.exec(text);
  if (!parts) return undefined;
  const value = Number(parts[1]);
  switch (parts[2]) {
    case 'kg':
      return { amount: value * 1000, unit: 'g' };
    case 'l':
      return { amount: value * 1000, unit: 'ml' };
    case 'g':
    case 'ml':
      return { amount: value, unit: parts[2] };
    default:
      return { amount: value };
  }
}

/** How many days an item is still good; undefined: it keeps. */
export function daysLeft(item: Item, now: Date): number | undefined {
  if (!item.until) return undefined;
  const today = Date.UTC(now.getFullYear(), now.getMonth(), now.getDate());
  return Math.round((Date.parse(item.until) - today) / 86_400_000);
}

/** Days as people say them. */
export function inWords(days: number | undefined): string {
  if (days === undefined) return 'keeps';
  if (days < -1) return `${-days} days over`;
  if (days > 1) return days < 60 ? `in ${days} days` : `in ${Math.round(days / 30)} months`;
  return { [-1]: '1 day over', 0: 'today', 1: 'tomorrow' }[days]!;
}

/** What to eat first comes first. */
export function byDay(a: Item, b: Item): number {
  return (a.until ?? '9999').localeCompare(b.until ?? '9999') || a.name.localeCompare(b.name);
}
