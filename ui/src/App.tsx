import { useEffect, useState } from 'react'
import { useQueryClient } from '@tanstack/react-query'
import { follow } from './api/events'
import { useSession } from './api/queries'
import { Connection, Dialogs } from './panels/dialogs'
import { Header } from './panels/header'
import { Runs } from './panels/runs'
import { Workspace } from './Workspace'
import { useView } from './state/store'

/** The page: the list of runs, or one run with everything around it. */
export function App() {
  const run = useView((view) => view.run)
  const client = useQueryClient()
  const [isConnected, setConnected] = useState(true)
  useEffect(() => follow(client, run, { onConnected: setConnected }), [client, run])
  const { data: session, error } = useSession()
  useEffect(() => {
    document.title = session ? `${session.name} · Tensight` : 'Tensight'
  }, [session])
  return (
    <div className="app" data-testid="app">
      <Header />
      <Connection isConnected={isConnected} />
      {run === '' || error ? <Runs error={error} /> : <Workspace />}
      <Dialogs />
    </div>
  )
}
