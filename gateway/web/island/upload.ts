// Uploads: files and folders come by drop or by choice, their progress is shown, and a refusal keeps the choice. All of it works without
// this file, by the form.

import { announce } from './toast';

interface Chosen { file: File; name: string }

const form = document.querySelector<HTMLFormElement>('form[data-upload]');

/** Returns the files of a drop, those of folders too, but no more than most. */
async function filesOf(items: DataTransferItemList, most: number): Promise<Chosen[]> {
  const found: Chosen[] = [];
  const walk = async (entry: FileSystemEntry): Promise<void> => {
    if (found.length > most) return;
    const name = entry.fullPath.replace(/^\//, '');
    if (entry.isFile) {
      found.push({ file: await new Promise<File>((done, fail) => { (entry as FileSystemFileEntry).file(done, fail); }), name });
      return;
    }
    const reader = (entry as FileSystemDirectoryEntry).createReader();
    for (;;) { // a browser lists a folder in parts
      const part = await new Promise<FileSystemEntry[]>((done, fail) => { reader.readEntries(done, fail); });
      if (!part.length) return;
      for (const e of part) await walk(e);
    }
  };
  // The list is empty after the first wait. Items dropped by a script have no entry.
  const all = [...items].filter(i => i.kind === 'file').map(i => ({ entry: i.webkitGetAsEntry(), file: i.getAsFile() }));
  for (const { entry, file } of all) {
    if (entry) await walk(entry);
    else if (file) found.push({ file, name: file.name });
  }
  return found;
}

if (form) {
  const part = <E extends HTMLElement>(name: string) => form.querySelector<E>(`[data-part="${name}"]`)!;
  const input = form.querySelector<HTMLInputElement>('input[type="file"]')!;
  const wrong = form.querySelector<HTMLElement>('.wrong')!;
  const bar = form.querySelector('progress')!;
  const zone = form.closest<HTMLElement>('.files-pane') ?? form;
  const most = { bytes: Number(form.dataset.bytes), files: Number(form.dataset.files) };
  let dropped: Chosen[] = [];
  let request: XMLHttpRequest | undefined;

  const chosen = (): Chosen[] => [...[...(input.files ?? [])].map(file => ({ file, name: file.webkitRelativePath || file.name })), ...dropped];
  const size = (n: number) => n < 1024 ? `${n} B` : n < 1 << 20 ? `${Math.round(n / 1024)} KiB` : `${(n / (1 << 20)).toFixed(1)} MiB`;
  const bytes = (all: Chosen[]) => all.reduce((n, c) => n + c.file.size, 0);

  /** Shows the reasons for a refusal below the field. Without lines it hides them. */
  const say = (...lines: string[]) => {
    wrong.hidden = !lines.length;
    wrong.replaceChildren(...lines.map(line => {
      const p = document.createElement('p');
      p.textContent = line;
      return p;
    }));
    if (lines.length) { input.setAttribute('aria-invalid', 'true'); input.focus(); } else input.removeAttribute('aria-invalid');
  };

  const show = () => {
    const all = chosen();
    const names = all.slice(0, 5).map(c => c.name).join(', ');
    const picked = part('picked');
    picked.hidden = !all.length;
    picked.textContent = `${names}${all.length > 5 ? ` and ${all.length - 5} more` : ''} · ${size(bytes(all))}`;
    input.required = !dropped.length;
    say();
  };

  const working = (on: boolean) => {
    part('progress').hidden = !on;
    part<HTMLButtonElement>('stop').disabled = false;
    form.querySelector<HTMLButtonElement>('button.primary')!.disabled = on;
    if (on) addEventListener('beforeunload', stay); else removeEventListener('beforeunload', stay);
    if (!on) request = undefined;
  };
  const stay = (e: BeforeUnloadEvent) => { e.preventDefault(); };

  const send = (data: FormData, folder: string) => {
    const r = request = new XMLHttpRequest();
    let arrived = false;
    r.open('POST', form.action);
    r.setRequestHeader('Accept', 'application/json');
    r.responseType = 'json';
    r.upload.addEventListener('progress', e => {
      if (!e.lengthComputable) return;
      arrived = e.loaded === e.total;
      bar.value = Math.floor(100 * e.loaded / e.total);
      part('words').textContent = arrived ? 'The files were sent. They are being written and committed.' : `${size(e.loaded)} of ${size(e.total)}`;
      part<HTMLButtonElement>('stop').disabled = arrived; // the server finishes it
    });
    r.addEventListener('load', () => {
      working(false);
      const answer = (r.response ?? {}) as { paths?: string[]; ignored?: string[]; detail?: string; hint?: string; kind?: string };
      if (r.status !== 200 || !answer.paths) {
        const why = answer.detail ?? `the server answers ${r.status}`;
        const refused = r.status < 500 && answer.kind !== 'conflict';
        say(refused ? 'Nothing was uploaded.' : 'The upload failed.', `${why.charAt(0).toUpperCase()}${why.slice(1)}.`, ...(answer.hint ? [answer.hint] : []));
        if (answer.kind === 'exists') form.querySelector<HTMLInputElement>('input[name="replace"]')?.focus();
        return;
      }
      const q = new URLSearchParams({ path: folder, sent: String(answer.paths.length), left: String(answer.ignored?.length ?? 0) });
      location.assign(`${form.dataset.back}&${q}`);
    });
    r.addEventListener('error', () => { working(false); say(arrived ? 'The connection was lost. Look at the folder before you try again.'
      : 'The connection was lost, or the server ended it. The files are still chosen.'); });
    r.addEventListener('abort', () => { working(false); say('It was stopped. The files are still chosen.'); });
    bar.value = 0;
    part('words').textContent = '';
    working(true);
    announce('The upload begins');
    r.send(data);
  };

  part('drop').hidden = false;
  input.addEventListener('change', () => { dropped = []; show(); });
  part('stop').addEventListener('click', () => request?.abort());
  form.addEventListener('submit', e => {
    e.preventDefault();
    if (request) return;
    const all = chosen();
    if (!all.length) { say('Choose a file.'); return; }
    if (all.length > most.files) { say(`These are more than ${most.files} files, which is the most that an upload has.`); return; }
    if (bytes(all) > most.bytes) { say(`The files have ${size(bytes(all))}. An upload has at most ${size(most.bytes)}.`); return; }
    const fields = new FormData(form);
    const folder = String(fields.get('folder') ?? '').replace(/^[ /]+|[ /]+$/g, '').replace(/^\.$/, '');
    const data = new FormData();
    data.append('folder', folder);
    if (fields.get('replace')) data.append('replace', '1');
    for (const c of all) data.append('files', c.file, c.name);
    say();
    send(data, folder);
  });

  zone.addEventListener('dragover', e => { if (e.dataTransfer?.types.includes('Files')) { e.preventDefault(); zone.dataset.over = ''; } });
  zone.addEventListener('dragleave', e => { if (!zone.contains(e.relatedTarget as Node | null)) delete zone.dataset.over; });
  zone.addEventListener('drop', e => {
    delete zone.dataset.over;
    if (!e.dataTransfer?.types.includes('Files') || request) return;
    e.preventDefault();
    filesOf(e.dataTransfer.items, most.files).then(found => {
      dropped = [...dropped, ...found];
      show();
      announce(`${chosen().length} files are chosen`);
    }, () => say('The browser cannot read what was dropped.'));
  });
}
