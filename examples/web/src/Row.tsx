import { amount, daysLeft, inWords, type Item } from './item';

export function Row({ item, now, onUsed }: { item: Item; now: Date; onUsed: () => void }) {
  const days = daysLeft(item, now);
  const kind = days === undefined ? 'keeps' : days < 0 ? 'over' : days <= 1 ? 'now' : days <= 7 ? 'soon' : 'later';
  return (
    <li>
      <span className="name">{item.name}</span>
      <span className="amount">{amount(item)}</span>
      <span className={`until ${kind}`}>{inWords(days)}</span>
      <button type="button" aria-label={`${item.name}: used up`} onClick={onUsed}>
        Used up
      </button>
    </li>
  );
}
