import '@mantine/core/styles.css'
import '@mantine/spotlight/styles.css'
import './frame.css'
import { MantineProvider } from '@mantine/core'
import { MutationCache, QueryCache, QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import './i18n'
import { ApiError } from './api/client'
import { useConnection } from './api/connection'
import { App } from './App'
import { Modals } from './parts/Modals'
import { followAddressBar } from './state/address'
import { theme } from './theme'

const onError = (error: Error) => {
  if (error instanceof ApiError && error.status === 401) useConnection.setState({ needsLogin: true })
}

const client = new QueryClient({
  queryCache: new QueryCache({ onError }),
  mutationCache: new MutationCache({ onError }),
  defaultOptions: {
    mutations: { networkMode: 'always' },
    queries: {
      // The server is often on this machine, so the browser's network state does not matter.
      networkMode: 'always',
      // Events say what is stale (`api/events.ts`).
      staleTime: Infinity,
      refetchOnWindowFocus: false,
      retry: (failures, error) => error instanceof ApiError && error.status === 0 && failures < 3,
    },
  },
})

followAddressBar()
const root = document.getElementById('root')
if (root) {
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={client}>
        <MantineProvider theme={theme} defaultColorScheme="auto">
          <Modals>
            <App />
          </Modals>
        </MantineProvider>
      </QueryClientProvider>
    </StrictMode>,
  )
}
