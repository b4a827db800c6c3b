import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';
import { larder } from './server/larder.ts';

export default defineConfig({
  plugins: [react(), larder()],
  server: { host: '127.0.0.1', port: 5173, strictPort: true },
  preview: { host: '127.0.0.1', port: 5173, strictPort: true },
  // Found out while the page is open, they would have it load a second time.
  optimizeDeps: { include: ['react', 'react-dom/client', 'react/jsx-runtime', 'react/jsx-dev-runtime'] },
});
