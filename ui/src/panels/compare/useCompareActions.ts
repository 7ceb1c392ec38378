import { useMutation } from '@tanstack/react-query'
import { useEffect, useMemo, useRef } from 'react'
import { useTranslation } from 'react-i18next'
import { change } from '~/api/client'
import { useCommand, useSession } from '~/api/queries'
import type { Session } from '~/api/types'
import { showRefusal } from '~/parts/refusal'
import { parseAddress } from '~/parts/tensorAddress'
import type { Action } from '~/state/actions'
import { arriving } from '~/state/address'
import { useView, type NodeChoice } from '~/state/store'
import { useActions } from '~/state/useActions'
import { useColouring } from './added'
import { nameOf } from './choices'
import { beginComparison, useCompareState, useFolded } from './compareState'
import { isUnfinished, useComparing, useShown, useComparison, type Shown } from './queries'
import type { ComparedOperator } from '~/api/types'
import { compareTexts } from './texts'

/** Return the node of an operator in A, in the graph named by its tensors' addresses. */
export function nodeOf(operator: ComparedOperator, rank: number): NodeChoice {
  const address = [...operator.outputs, ...operator.inputs].find((slot) => slot.address)?.address
  return { rank, graph: parseAddress(address ?? '')?.graph ?? '', name: operator.name }
}

/** Keeps the comparison running on every tab, colours tree and graph, and offers the actions. */
export function CompareActions() {
  const { data: comparison } = useComparison()
  const shown = useShown()
  const id = comparison?.id
  useEffect(() => {
    if (id !== undefined) beginComparison(id)
  }, [id])
  useColours(shown)
  useArrival(shown)
  useOffers(shown)
  return null
}

function useColours(shown: Shown | undefined): void {
  const isColoured = useCompareState((state) => state.isColoured)
  const id = shown?.comparison.id
  const rank = shown?.result.rank
  const step = shown?.step
  useEffect(() => {
    const isKnown = id !== undefined && rank !== undefined && step !== undefined && step !== null
    useColouring.setState({ of: isColoured && isKnown ? { id, rank, step } : null })
  }, [isColoured, id, rank, step])
  useEffect(() => () => useColouring.setState({ of: null }), [])
}

/** Select the first divergence when it is found; when a link is opened, only if no node is selected. */
function useArrival(shown: Shown | undefined): void {
  const { data: comparison } = useComparison()
  const awaited = useRef('')
  const first = shown?.result.first
  const target = first ? JSON.stringify(nodeOf(first, shown.result.rank)) : null
  const id = shown?.comparison.id
  useEffect(() => {
    if (comparison && isUnfinished(comparison)) awaited.current = comparison.id
  }, [comparison])
  useEffect(() => {
    if (target === null) return
    const { node, set } = useView.getState()
    if (node !== null && awaited.current !== id) return
    awaited.current = ''
    arriving(() => set({ node: JSON.parse(target) as NodeChoice }))
  }, [target, id])
}

function useOffers(shown: Shown | undefined): void {
  const { t } = useTranslation(compareTexts)
  const run = useView((view) => view.run)
  const other = useView((view) => view.other)
  const { data: session } = useSession()
  const { mutate: command } = useCommand()
  const isColoured = useCompareState((state) => state.isColoured)
  const [isFolded, fold] = useFolded()
  const { again } = useComparing()
  const { mutate: compareAgain } = again
  const { mutate: swap } = useSwap(shown, session)
  const actions = useMemo((): Action[] => {
    if (run === '') return []
    const { set, selectNode } = useView.getState()
    const first = shown?.result.first ?? null
    const canGo = session?.capabilities.can_go_to_step === true
    const none = other === '' ? t('why.noComparison') : undefined
    const noFinding = none ?? (first ? undefined : t('why.noFinding'))
    const offered: Omit<Action, 'group'>[] = [
      { id: 'compare.with', label: t('action.with'), keys: 'alt+B', run: () => set({ dialog: 'compare' }) },
      {
        id: 'compare.open',
        label: t('action.open'),
        keys: 'alt+shift+B',
        run: () => set({ tab: 'compare' }),
      },
      {
        id: 'compare.node',
        label: t('action.node'),
        keys: 'alt+G',
        disabled: noFinding,
        run: () => first && shown && selectNode(nodeOf(first, shown.result.rank), 'graph'),
      },
      {
        id: 'compare.step',
        label: t('action.step', { step: first?.step ?? '' }),
        keys: 'alt+J',
        disabled: noFinding ?? (canGo ? undefined : t('why.cannotGo')),
        run: () => first && command({ action: 'go_to_step', steps: first.step }),
      },
      {
        id: 'compare.values',
        label: t('action.values'),
        keys: 'alt+V',
        disabled: none ?? (shown?.step == null ? t('why.nothingToShow') : undefined),
        run: () => {
          const { node } = useView.getState()
          if (node === null && first && shown) selectNode(nodeOf(first, shown.result.rank))
          set({ tab: 'compare', part: 'values' })
        },
      },
      {
        id: 'compare.colours',
        label: t(isColoured ? 'action.noColours' : 'action.colours'),
        keys: 'alt+K',
        disabled: none,
        run: () => useCompareState.setState({ isColoured: !isColoured }),
      },
      {
        id: 'compare.fold',
        label: t(isFolded ? 'action.unfold' : 'action.fold'),
        keys: 'alt+shift+K',
        disabled: none,
        run: () => fold(!isFolded),
      },
      { id: 'compare.again', label: t('action.again'), disabled: none, run: () => compareAgain() },
      { id: 'compare.swap', label: t('action.swap'), disabled: none, run: () => swap() },
      {
        id: 'compare.end',
        label: t('action.end'),
        disabled: none,
        run: () => set({ other: '', part: null }),
      },
    ]
    return offered.map((action) => ({ ...action, group: t('group') }))
  }, [run, other, shown, session, command, isColoured, isFolded, fold, compareAgain, swap, t])
  useActions(actions)
}

/** Show B, compared with A; open its dump if it is not open. */
function useSwap(shown: Shown | undefined, session: Session | undefined) {
  return useMutation({
    mutationFn: async () => {
      const b = shown?.comparison.b
      if (!b || !session) return
      const opened = b.session ?? (await change<Session>('POST', 'sessions', { dump: b.dump })).id
      useView.getState().openRun(opened)
      useView.getState().set({ other: nameOf(session), tab: 'compare' })
    },
    onError: showRefusal,
  })
}
