import { readFile } from 'node:fs/promises';
import type { Connect, Plugin } from 'vite';

// Answers with what is in the larder. It is read again each time and never written: what
// somebody adds on the page stays in that browser.
const items: Connect.NextHandleFunction = async (_request, response) => {
  try {
    const text = await readFile(new URL('../data/larder.json', import.meta.url), 'utf8');
    response.setHeader('Content-Type', 'application/json');
    response.end(text);
  } catch (error) {
    response.statusCode = 500;
    response.end(String(error));
  }
};

/** Serves /api/larder in development and preview. */
export function larder(): Plugin {
  return {
    name: 'larder',
    configureServer: (server) => void server.middlewares.use('/api/larder', items),
    configurePreviewServer: (server) => void server.middlewares.use('/api/larder', items),
  };
}
