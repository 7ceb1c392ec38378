import { useEffect, useRef } from 'react'
import { useTranslation } from 'react-i18next'
import type { Session } from '~/api/types'
import { useView } from '~/state/store'
import { runsTexts } from './texts'
import { tell } from '~/state/messages'

/** The training that came since the list was last looked at, if it is the only one that is attached. */
export function arrived(known: ReadonlySet<string> | null, sessions: Session[]): Session | undefined {
  const attached = sessions.filter((one) => isAttached(one))
  const [first] = attached
  return known && first && attached.length === 1 && !known.has(first.id) ? first : undefined
}

/** Whether a training process takes part. */
export function isAttached(session: Session): boolean {
  return session.capabilities.live && !['finished', 'terminated', 'failed', 'lost'].includes(session.state)
}

/** Whoever waits for a training is shown the first one that attaches. */
export function useArrival(sessions: Session[] | undefined): void {
  const { t } = useTranslation(runsTexts)
  const known = useRef<ReadonlySet<string> | null>(null)
  useEffect(() => {
    if (!sessions) return
    const first = arrived(known.current, sessions)
    known.current = new Set(sessions.map((one) => one.id))
    if (first && useView.getState().run === '') {
      useView.getState().openRun(first.id)
      tell(t('attachedNow', { name: first.name }))
    }
  }, [sessions, t])
}
