import { notifications } from '@mantine/notifications'
import { useCallback } from 'react'
import { useTranslation } from 'react-i18next'
import { useCommand, useSession } from '~/api/queries'
import { overviewTexts } from './texts'

/** Show another step, where the run can; says why where it cannot. */
export function useGoToStep(): (step: number) => void {
  const { t } = useTranslation(overviewTexts)
  const { data: session } = useSession()
  const { mutate } = useCommand()
  return useCallback(
    (step: number) => {
      if (!session || session.step === step) return
      if (session.capabilities.can_go_to_step) mutate({ action: 'go_to_step', steps: step })
      else
        notifications.show({
          message: t('cannotGo', {
            step,
            why: session.state === 'running' ? t('cannotGoRunning') : t('cannotGoElse'),
          }),
        })
    },
    [mutate, session, t],
  )
}
