import { useMemo } from 'react'
import { useTranslation } from 'react-i18next'
import { useCommand, useSession } from '~/api/queries'
import type { Action } from '~/state/actions'
import { useView } from '~/state/store'
import { useActions } from '~/state/useActions'
import { addressOf, isVague, nodeOf, stepOf, type Finding } from './findings'
import { originTexts } from './texts'

/** Offer the actions on a finding. */
export function useOriginActions(
  finding: Finding | null,
  shown: {
    isFolded: boolean
    fold: (isFolded: boolean) => void
    hasDetails: boolean
    setDetails: (hasDetails: boolean) => void
  },
): void {
  const { t } = useTranslation(originTexts)
  const { data: session } = useSession()
  const { mutate: command } = useCommand()
  const { isFolded, fold, hasDetails, setDetails } = shown
  const canGo = session?.capabilities.can_go_to_step === true
  const canCapture = session?.capabilities.can_look_closer === true
  const step = session?.step
  const actions = useMemo((): Action[] => {
    if (!finding) return []
    const { selectNode, openTensor, set } = useView.getState()
    const group = t('group')
    const offered: Action[] = [
      {
        id: 'origin.node',
        label: t('showNode'),
        keys: 'alt+O',
        group,
        run: () => selectNode(nodeOf(finding), 'graph'),
      },
      {
        id: 'origin.tensor',
        label: t('openTensor'),
        keys: 'alt+shift+O',
        group,
        run: () => {
          selectNode(nodeOf(finding))
          openTensor(addressOf(finding))
        },
      },
      { id: 'origin.hits', label: t('allHits'), keys: 'alt+H', group, run: () => set({ left: 'hits' }) },
      {
        id: 'origin.details',
        label: hasDetails ? t('hideDetails') : t('details'),
        keys: 'alt+D',
        group,
        run: () => {
          setDetails(!hasDetails)
          if (isFolded) fold(false)
        },
      },
      {
        id: 'origin.fold',
        label: isFolded ? t('unfold') : t('fold'),
        keys: 'alt+shift+D',
        group,
        run: () => fold(!isFolded),
      },
    ]
    if (stepOf(finding) !== step) {
      offered.push({
        id: 'origin.step',
        label: t('goToStep', { step: stepOf(finding) }),
        keys: 'alt+S',
        group,
        disabled: canGo ? undefined : t('cannotGo'),
        run: () => command({ action: 'go_to_step', steps: stepOf(finding) }),
      })
    }
    if (canCapture && isVague(finding)) {
      offered.push({
        id: 'origin.closer',
        label: t('captureOperators'),
        keys: 'alt+C',
        group,
        run: () => command({ action: 'look_closer', steps: -1 }),
      })
    }
    return offered
  }, [finding, t, step, canGo, canCapture, command, isFolded, fold, hasDetails, setDetails])
  useActions(actions)
}
