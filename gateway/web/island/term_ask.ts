// Questions of the terminal, and short answers of its server.

/** Asks a question, and returns whether the answer is yes. */
export function ask(title: string, words: string, yes: string, code = ''): Promise<boolean> {
  const dialog = document.createElement('dialog');
  dialog.className = 'ask';
  const head = document.createElement('h2');
  head.textContent = title;
  head.id = 'ask-title';
  dialog.setAttribute('aria-labelledby', head.id);
  const body = document.createElement('p');
  body.textContent = words;
  dialog.append(head, body);
  if (code) {
    const shown = document.createElement('pre');
    shown.className = 'wrap';
    shown.tabIndex = 0;
    shown.textContent = code;
    dialog.append(shown);
  }
  const acts = document.createElement('div');
  acts.className = 'acts';
  const button = (name: string, kind: string, value: string) => {
    const b = document.createElement('button');
    b.type = 'button';
    b.className = `btn ${kind}`;
    b.textContent = name;
    b.addEventListener('click', () => dialog.close(value));
    acts.append(b);
    return b;
  };
  button('Cancel', '', '');
  const primary = button(yes, 'primary', 'yes');
  dialog.append(acts);
  document.body.append(dialog);
  dialog.showModal();
  primary.focus();
  return new Promise(answer => dialog.addEventListener('close', () => {
    dialog.remove();
    answer(dialog.returnValue === 'yes');
  }, { once: true }));
}

/** Returns words of a program as one line that deceives nobody. */
export function clean(words: string, most = 80): string {
  const line = words.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, ' ').trim();
  return line.length > most ? line.slice(0, most - 1) + '…' : line;
}
