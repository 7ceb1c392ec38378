import { modals } from '@mantine/modals'
import { useMemo } from 'react'
import { useTranslation } from 'react-i18next'
import { change } from '~/api/client'
import { useConnection } from '~/api/connection'
import { path, useCommand, useSession } from '~/api/queries'
import { showRefusal } from '~/parts/refusal'
import type { Action } from '~/state/actions'
import { useView } from '~/state/store'
import { useActions } from '~/state/useActions'
import { whyNot, type Reason } from './reasons'
import { headerTexts } from './texts'

/** Offer the actions that control the run; `steps` is the step size, `askStep` opens the field for a step. */
export function useRunActions(steps: number, askStep: () => void): void {
  const { t, i18n } = useTranslation(headerTexts)
  const { data: session } = useSession()
  const run = useView((view) => view.run)
  const isConnected = useConnection((connection) => connection.isConnected)
  const { mutate: command } = useCommand()

  const actions = useMemo(() => {
    if (!session || session.id !== run) return []
    const textOf = (reason: Reason | undefined) => (reason === undefined ? undefined : t(`why.${reason}`))
    const why = (can: Parameters<typeof whyNot>[1]) => textOf(whyNot(session, can, isConnected))
    const isLive = session.capabilities.live
    const names = { name: session.name, step: session.step }
    const close = () => change('DELETE', path(run)).catch(showRefusal)
    const terminate = () =>
      modals.openConfirmModal({
        title: isLive ? t('sure') : t('sureClose'),
        children: isLive ? t('sureText', names) : t('sureCloseText', names),
        labels: {
          confirm: isLive ? t('action.terminate') : t('action.close'),
          cancel: isLive ? t('keep') : t('keepOpen'),
        },
        confirmProps: { color: 'red' },
        cancelProps: { 'data-autofocus': true },
        // Only a live training takes the command; any other session is closed.
        onConfirm: () => (isLive ? command({ action: 'terminate' }) : void close()),
      })
    const offered: Omit<Action, 'group'>[] = [
      {
        id: 'run.continue',
        label: t('action.continue'),
        keys: 'F8',
        disabled: why('can_step'),
        run: () => command({ action: 'continue', steps: -1 }),
      },
      {
        id: 'run.pause',
        label: t('action.pause'),
        keys: 'F6',
        disabled: why('can_pause'),
        run: () => command({ action: 'pause' }),
      },
      {
        id: 'run.step',
        label: t('action.step', { count: steps }),
        keys: 'F10',
        disabled: why('can_step'),
        run: () => command({ action: 'continue', steps }),
      },
      {
        id: 'run.nextNode',
        label: t('action.nextNode'),
        keys: 'F11',
        disabled: why('can_next_node'),
        run: () => command({ action: 'next_node' }),
      },
      {
        id: 'run.previousNode',
        label: t('action.previousNode'),
        keys: 'shift+F11',
        disabled: why('can_previous_node'),
        run: () => command({ action: 'previous_node' }),
      },
      {
        id: 'run.back',
        label: t('action.back'),
        keys: 'shift+F10',
        disabled: why('can_step_back'),
        run: () => command({ action: 'step_back', steps: 1 }),
      },
      {
        id: 'run.goToStep',
        label: t('action.goToStep'),
        keys: 'mod+G',
        disabled: why('can_go_to_step'),
        run: askStep,
      },
      {
        id: 'run.recheck',
        label: t('action.recheck'),
        keys: 'F9',
        disabled: why('can_recheck'),
        run: () => command({ action: 'recheck' }),
      },
      {
        id: 'run.terminate',
        label: isLive ? t('action.terminate') : t('action.close'),
        keys: 'shift+F8',
        disabled: why('can_terminate'),
        run: terminate,
      },
    ]
    return offered.map((action) => ({ ...action, group: t('group.run') }))
    // The texts depend on the language.
    // oxlint-disable-next-line react/exhaustive-deps
  }, [session, run, isConnected, steps, askStep, command, t, i18n.language])
  useActions(actions)
}
