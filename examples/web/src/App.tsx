import { useEffect, useState } from 'react';
import { AddItem } from './AddItem';
import { byDay, daysLeft, type Item } from './item';
import { Row } from './Row';

const filters = { all: 'All', soon: 'This week', keeps: 'Keeps' };

export function App() {
  const [items, setItems] = useState<Item[]>([]);
  const [filter, setFilter] = useState<keyof typeof filters>('all');
  const [trouble, setTrouble] = useState('');
  const now = new Date();

  useEffect(() => {
    const leave = new AbortController();
    fetch('/api/larder', { signal: leave.signal })
      .then((response) => (response.ok ? response.json() : Promise.reject(new Error(`the larder answers ${response.status}`))))
      .then(setItems)
      .catch((error: Error) => leave.signal.aborted || setTrouble(error.message));
    return () => leave.abort();
  }, []);

  const sorted = items.toSorted(byDay);
  const shown = sorted.filter((item) => {
    const days = daysLeft(item, now);
    return filter === 'all' || (filter === 'keeps' ? days === undefined : days !== undefined && days <= 7);
  });

  return (
    <>
      <header>
        <div className="page">
          <Jar />
          <div>
            <h1>Larder</h1>
            <p>{now.toLocaleDateString('en-GB', { weekday: 'long', day: 'numeric', month: 'long', year: 'numeric' })}</p>
          </div>
          <output id="count">{items.length === 1 ? '1 thing' : `${items.length} things`}</output>
        </div>
      </header>
      <main className="page">
        {trouble && <p role="alert">Cannot show what there is: {trouble}.</p>}
        <section className="list" aria-label="What there is">
          <nav aria-label="Show">
            {Object.entries(filters).map(([key, label]) => (
              <button key={key} type="button" aria-pressed={key === filter} onClick={() => setFilter(key as keyof typeof filters)}>
                {label}
              </button>
            ))}
          </nav>
          <ul id="items">
            {shown.map((item) => (
              <Row key={item.name} item={item} now={now} onUsed={() => setItems(items.filter((other) => other !== item))} />
            ))}
          </ul>
          {shown.length === 0 && !trouble && <p className="empty">Nothing here.</p>}
        </section>
        <AddItem onAdd={(item) => setItems([...items.filter((other) => other.name !== item.name), item])} />
      </main>
    </>
  );
}

function Jar() {
  return (
    <svg viewBox="0 0 32 32" width="44" height="44" aria-hidden="true">
      <rect x="9" y="3" width="14" height="5" rx="1.5" fill="#e9b872" />
      <path d="M10 9h12c0 2 3 3 3 6v11a3 3 0 0 1-3 3H10a3 3 0 0 1-3-3V15c0-3 3-4 3-6z" fill="#f4efe4" />
      <path d="M7 18h18v8a3 3 0 0 1-3 3H10a3 3 0 0 1-3-3z" fill="#c8653c" />
    </svg>
  );
}
