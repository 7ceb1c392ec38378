import { fileURLToPath } from 'node:url'
import react from '@vitejs/plugin-react'
import icons from 'unplugin-icons/vite'
import { defineConfig } from 'vitest/config'

const server = process.env['TENSIGHT_URL'] ?? 'http://127.0.0.1:8080'

/** The source of the component of an icon: its outermost attributes are those of `svgIcon`. */
function component(svg: string) {
  const drawing = svg.replace(/^<svg[^>]*>|<\/svg>$/g, '').replace(/ (fill="none"|stroke-width="2")/g, '')
  return `import { svgIcon } from '~/parts/svgIcon'\nexport default svgIcon(${JSON.stringify(drawing)})\n`
}

export default defineConfig({
  // Relative, so that the page works below any --url-path-prefix.
  base: './',
  plugins: [react(), icons({ compiler: { compiler: component } })],
  resolve: { alias: { '~': fileURLToPath(new URL('./src', import.meta.url)) } },
  worker: { format: 'es' },
  build: {
    target: 'es2022',
    // Browsers that know light-dark() themselves: what it is replaced with for others does not heed the theme.
    cssTarget: ['chrome123', 'firefox120', 'safari17.5'],
    chunkSizeWarningLimit: 1600,
    assetsInlineLimit: 0,
  },
  // The server takes requests of its own page only, so what the development server hands on says that it comes from there.
  server: {
    proxy: { '/api': { target: server, ws: true, changeOrigin: true, headers: { origin: server } } },
  },
  // One page for all files of a worker: making one takes longer than all tests.
  test: {
    environment: 'happy-dom',
    isolate: false,
    include: ['src/**/*.test.{ts,tsx}'],
    setupFiles: ['src/testing.ts'],
  },
})
