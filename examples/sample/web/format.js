// Amounts and days as a page of the larder shows them: what packages units and
// report do on the command line.

const larger = { g: 'kg', ml: 'l' };

/** Shows a value in grams, millilitres or (without a unit) pieces. */
export function amount(value, unit = '') {
  if (!Number.isFinite(value) || value < 0) throw new RangeError(`not an amount: ${value}`);
  if (value >= 1000 && larger[unit]) {
    value /= 1000;
    unit = larger[unit];
  }
  const text = String(Math.round(value * 1000) / 1000);
  return unit ? `${text} ${unit}` : text;
}

/** Says how far a day ("2026-03-09") is from today, both without a time. */
export function until(day, today) {
  if (!day) return 'keeps';
  const days = Math.round((Date.parse(day) - Date.parse(today)) / 86_400_000);
  if (Number.isNaN(days)) throw new RangeError(`not a day: ${day}`);
  if (days === 0) return 'today';
  return days > 0 ? `in ${days} days` : `${-days} days ago`;
}

/** Makes text safe for HTML. */
export function escape(text) {
  return text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}

/** One row of the table. */
export function row(item, today) {
  const cells = [escape(item.name), amount(item.value, item.unit), until(item.until, today)];
  return `<tr>${cells.map((c) => `<td>${c}</td>`).join('')}</tr>`;
}
