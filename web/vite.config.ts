import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// The policy of the page allows neither inline code nor anything from elsewhere: every asset is a
// file of its own with the digest of its bytes in its name.
export default defineConfig({
  plugins: [svelte()],
  build: {
    outDir: '../rookery/server/page/built',
    emptyOutDir: true,
    target: 'es2022',
    cssTarget: ['chrome125', 'firefox125', 'safari18'],
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    license: { fileName: 'licenses.md' }, // of what is built in
  },
  server: { proxy: { '/api': { target: 'http://127.0.0.1:7860', ws: true } } },
});
