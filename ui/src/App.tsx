import { Skeleton } from '@mantine/core'
import { lazy, Suspense, useCallback, useEffect, useRef } from 'react'
import { useConnection } from './api/connection'
import { useSession } from './api/queries'
import { useFollowing } from './api/useFollowing'
import type { Message, Session } from './api/types'
import { Connection, Dialogs } from './panels/dialogs'
import { Foot } from './panels/foot'
import { Header } from './panels/header'
import { NotOpened, Opening, Runs } from './panels/runs'
import { Failure } from './parts/Notice'
import { showStep } from './state/address'
import { tell } from './state/messages'
import { useHotkeys } from './state/useHotkeys'
import { useView } from './state/store'
import { Workspace } from './Workspace'

const Search = lazy(() => import('./panels/search'))

/** The page: the list of runs, or one run with everything around it. */
export function App() {
  const run = useView((view) => view.run)
  const search = useView((view) => view.search)
  const gone = useConnection((connection) => connection.gone)
  const { data: session, error, refetch } = useSession()
  useFollowing(run, onMessage)
  useHotkeys()
  useEffect(() => {
    document.title = session ? `${session.name} · Tensight` : 'Tensight'
  }, [session])
  useStepInAddress(session?.step)
  const again = useCallback(() => void refetch(), [refetch])

  let content
  if (run === '' && search !== '') content = <Searched />
  else if (run === '' || gone?.run === run) content = <Runs />
  else if (!session && error) content = <Failure error={error} retry={again} />
  else if (session?.state === 'failed') content = <NotOpened session={session} />
  // An unknown session may have no graph to request yet.
  else if (!session) content = <Waiting />
  else if (isEmpty(session)) content = <Opening session={session} />
  else content = <Workspace key={run} />
  return (
    <div className="app" data-testid="app">
      <Header />
      <Connection />
      <main className="fill">{content}</main>
      <Foot />
      <Dialogs />
    </div>
  )
}

function Searched() {
  return (
    <Suspense fallback={<Waiting />}>
      <Search />
    </Suspense>
  )
}

function Waiting() {
  return <Skeleton m="sm" style={{ flex: 1 }} data-testid="waiting" />
}

/** Whether there is nothing to show of the session yet. */
function isEmpty(session: Session): boolean {
  return session.state === 'connecting' && session.ranks.every((rank) => rank.graphs.length === 0)
}

/** Show a message of the session, such as a remark on a check or that the disk is full. */
function onMessage(message: Message): void {
  tell(message.text, message.level)
}

/** Keep the step shown in the address bar; the step of a link stays until the run moves. */
function useStepInAddress(step: number | undefined): void {
  const set = useView((view) => view.set)
  const before = useRef<number | undefined>(undefined)
  useEffect(() => {
    if (step === undefined) return
    const isReached = step === useView.getState().linkedStep
    if (isReached || (before.current !== undefined && before.current !== step)) set({ linkedStep: null })
    before.current = step
    showStep(step)
  }, [step, set])
}
