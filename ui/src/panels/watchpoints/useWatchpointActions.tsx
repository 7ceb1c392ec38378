import { modals } from '@mantine/modals'
import { Text } from '@mantine/core'
import { useCallback, useMemo } from 'react'
import { useTranslation } from 'react-i18next'
import { useSession, useWatchpoints } from '~/api/queries'
import type { Watchpoint } from '~/api/types'
import { useConditionWords } from '~/parts/conditionWords'
import type { Action } from '~/state/actions'
import { useView } from '~/state/store'
import { useActions } from '~/state/useActions'
import { useWatchpointEdits } from './edits'
import { watchpointsTexts } from './texts'

/** Return why watchpoints cannot be changed now; undefined if they can. */
export function useRefusal(): string | undefined {
  const { t } = useTranslation(watchpointsTexts)
  const { data: session } = useSession()
  return session?.capabilities.can_edit_watchpoints ? undefined : t('notNow')
}

/** Return a function that deletes a watchpoint after confirmation. */
export function useDelete(): (watchpoint: Watchpoint) => void {
  const { t } = useTranslation(watchpointsTexts)
  const words = useConditionWords()
  const { mutate: remove } = useWatchpointEdits().remove
  return useCallback(
    ({ id, condition }) =>
      modals.openConfirmModal({
        title: t('confirmDelete', { id, label: words.label(condition) }),
        children: <Text>{t('cannotUndo')}</Text>,
        labels: { confirm: t('deleteIt'), cancel: t('cancel') },
        confirmProps: { color: 'red' },
        onConfirm: () => {
          const { watchpoint, set } = useView.getState()
          if (watchpoint === id) set({ watchpoint: null })
          remove(id)
        },
      }),
    [t, words, remove],
  )
}

/** Offer the actions on watchpoints. */
export function useWatchpointActions(): void {
  const { t } = useTranslation(watchpointsTexts)
  const { data: watchpoints } = useWatchpoints()
  const chosen = useView((view) => view.watchpoint)
  const refusal = useRefusal()
  const askDelete = useDelete()
  const { mutate: clear } = useWatchpointEdits().clear
  const amount = watchpoints?.length ?? 0
  const selected = watchpoints?.find((each) => each.id === chosen)
  const actions = useMemo((): Action[] => {
    const { set } = useView.getState()
    const group = t('group')
    const ofChosen = refusal ?? (selected ? undefined : t('chooseFirst'))
    return [
      {
        id: 'watchpoints.new',
        label: t('new'),
        keys: 'alt+W',
        group,
        disabled: refusal,
        run: () => set({ dialog: 'watchpoint', edited: null }),
      },
      {
        id: 'watchpoints.edit',
        label: t('edit'),
        keys: 'alt+E',
        group,
        disabled: ofChosen,
        run: () => selected && set({ dialog: 'watchpoint', edited: selected.id }),
      },
      {
        id: 'watchpoints.delete',
        label: t('delete'),
        keys: 'alt+Delete',
        group,
        disabled: ofChosen,
        run: () => selected && askDelete(selected),
      },
      {
        id: 'watchpoints.clear',
        label: t('clear'),
        keys: 'alt+shift+Delete',
        group,
        disabled: refusal ?? (amount === 0 ? t('none') : undefined),
        run: () =>
          modals.openConfirmModal({
            title: t('confirmClear', { count: amount }),
            children: <Text>{t('cannotUndo')}</Text>,
            labels: { confirm: t('deleteIt'), cancel: t('cancel') },
            confirmProps: { color: 'red' },
            onConfirm: () => {
              set({ watchpoint: null })
              clear()
            },
          }),
      },
    ]
  }, [t, refusal, selected, amount, askDelete, clear])
  useActions(actions)
}
