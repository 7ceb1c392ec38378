import { useEffect, useRef } from 'react'
import { notifications } from '@mantine/notifications'
import { useTranslation } from 'react-i18next'
import type { Session } from '~/api/types'
import { useView } from '~/state/store'
import { runsTexts } from './texts'

/** Whoever waits for a training with nothing else to look at is shown the first one that attaches. */
export function useArrival(sessions: Session[] | undefined): void {
  const { t } = useTranslation(runsTexts)
  const wasEmpty = useRef(false)
  useEffect(() => {
    if (!sessions) return
    const [first] = sessions
    if (!first) {
      wasEmpty.current = true
    } else if (wasEmpty.current && first.capabilities.live && useView.getState().run === '') {
      wasEmpty.current = false
      useView.getState().openRun(first.id)
      notifications.show({ message: t('attachedNow', { name: first.name }), autoClose: 4_000 })
    }
  }, [sessions, t])
}
