import { useCallback } from 'react'
import { useTranslation } from 'react-i18next'
import { useCommand, useSession } from '~/api/queries'
import { overviewTexts } from './texts'
import { tell } from '~/state/messages'

/** Return a function that shows another step, or says why the run cannot. */
export function useGoToStep(): (step: number) => void {
  const { t } = useTranslation(overviewTexts)
  const { data: session } = useSession()
  const { mutate } = useCommand()
  return useCallback(
    (step: number) => {
      if (!session || session.step === step) return
      if (session.capabilities.can_go_to_step) mutate({ action: 'go_to_step', steps: step })
      else
        tell(
          t('cannotGo', {
            step,
            why: session.state === 'running' ? t('cannotGoRunning') : t('cannotGoElse'),
          }),
          'info',
          'cannotGo',
        )
    },
    [mutate, session, t],
  )
}
