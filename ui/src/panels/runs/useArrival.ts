import { useEffect, useRef } from 'react'
import { useTranslation } from 'react-i18next'
import type { Session } from '~/api/types'
import { useView } from '~/state/store'
import { runsTexts } from './texts'
import { tell } from '~/state/messages'

/** Return the training that has attached since the list was last seen, if it is the only one attached. */
export function arrived(seen: ReadonlySet<string> | null, sessions: Session[]): Session | undefined {
  const attached = sessions.filter((session) => isAttached(session))
  const [first] = attached
  return seen && first && attached.length === 1 && !seen.has(first.id) ? first : undefined
}

/** Whether a training process is attached. */
export function isAttached(session: Session): boolean {
  return session.capabilities.live && !['finished', 'terminated', 'failed', 'lost'].includes(session.state)
}

/** Show the first training that attaches while the list of runs is open. */
export function useArrival(sessions: Session[] | undefined): void {
  const { t } = useTranslation(runsTexts)
  const seen = useRef<ReadonlySet<string> | null>(null)
  useEffect(() => {
    if (!sessions) return
    const first = arrived(seen.current, sessions)
    seen.current = new Set(sessions.map((session) => session.id))
    if (first && useView.getState().run === '') {
      useView.getState().openRun(first.id)
      tell(t('attachedNow', { name: first.name }))
    }
  }, [sessions, t])
}
