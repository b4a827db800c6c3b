import { defineConfig } from '@playwright/test';

export default defineConfig({
  reporter: 'line',
  use: { baseURL: 'http://127.0.0.1:4173', trace: 'on' },
  webServer: { command: 'node page.mjs', url: 'http://127.0.0.1:4173' },
});
