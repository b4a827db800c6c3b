// Shows times in the reader's own zone, and short ones as "3 min ago". The server writes them in UTC.

const units: [Intl.RelativeTimeFormatUnit, number][] = [['day', 86_400], ['hour', 3600], ['minute', 60]];
const relative = new Intl.RelativeTimeFormat('en', { numeric: 'auto', style: 'short' });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
const day = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', year: 'numeric' });

function ago(then: Date): string {
  const s = (then.getTime() - Date.now()) / 1000;
  if (Math.abs(s) < 45) return s > 5 ? 'in a moment' : 'now';
  if (Math.abs(s) > 14 * 86_400) return day.format(then);
  for (const [unit, size] of units) if (Math.abs(s) >= size) return relative.format(Math.round(s / size), unit);
  return relative.format(Math.round(s / 60), 'minute');
}

export function refreshTimes(root: ParentNode = document) {
  for (const e of root.querySelectorAll<HTMLTimeElement>('time.when')) {
    const then = new Date(e.dateTime);
    if (isNaN(then.getTime())) continue;
    const text = ago(then);
    if (e.textContent !== text) e.textContent = text;
  }
}

// The exact time is a tip, which is made when it is asked for.
addEventListener('pointerover', e => {
  const time = (e.target as Element).closest?.<HTMLTimeElement>('time.when');
  if (time && !time.title) time.title = exact.format(new Date(time.dateTime));
});

refreshTimes();
setInterval(refreshTimes, 30_000, document);
