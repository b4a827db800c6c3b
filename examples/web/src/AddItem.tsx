import { useState, type FormEvent } from 'react';
import { parseAmount, type Item } from './item';

export function AddItem({ onAdd }: { onAdd: (item: Item) => void }) {
  const [mistake, setMistake] = useState('');

  function submit(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const form = event.currentTarget;
    const field = (name: string) => String(new FormData(form).get(name) ?? '').trim();
    const read = parseAmount(field('amount'));
    if (!read) {
      setMistake('An amount looks like "6", "750 g" or "1.5 l".');
      return;
    }
    onAdd({ name: field('name'), ...read, until: field('until') || undefined });
    setMistake('');
    form.reset();
  }

  return (
    <form onSubmit={submit} aria-label="Put something in">
      <h2>Put something in</h2>
      <label>
        What
        <input name="name" required maxLength={40} placeholder="Rice" autoComplete="off" />
      </label>
      <label>
        How much
        <input name="amount" required maxLength={12} placeholder="1 kg" autoComplete="off" aria-invalid={mistake !== ''} />
      </label>
      <label>
        Good until
        <input name="until" placeholder="2026-12-31, or nothing" pattern="\d{4}-\d{2}-\d{2}" autoComplete="off" />
      </label>
      {mistake && <p role="alert">{mistake}</p>}
      <button type="submit">Add</button>
    </form>
  );
}
