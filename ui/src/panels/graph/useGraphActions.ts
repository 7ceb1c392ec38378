import { useReactFlow } from '@xyflow/react'
import { useMemo } from 'react'
import { useTranslation } from 'react-i18next'
import type { GraphLevel, GraphRecord } from '~/api/types'
import { count } from '~/parts/numbers'
import type { Action } from '~/state/actions'
import { useView } from '~/state/store'
import { useActions } from '~/state/useActions'
import type { Layout } from './layout'
import { useMarks } from './marks'
import { MOST_OPEN, useOpenPart, useOpenParts } from './openPart'
import { pictureOf, type Picture } from './picture'
import { reach, type Direction } from './reach'
import { graphTexts } from './texts'
import { readLevel, type LevelQuery } from './useLevel'
import type { Viewport } from './useViewport'

/** Larger graphs cannot be opened as a whole. */
const MOST_NODES = 1500

interface Shown extends Omit<LevelQuery, 'scopes'> {
  part: string
  graphs: readonly GraphRecord[]
  picture: Picture | undefined
  layout: Layout | undefined
  viewport: Viewport
  isLarge: boolean
  setLarge: (isLarge: boolean) => void
}

export function useGraphActions(shown: Shown): void {
  const { t } = useTranslation(graphTexts)
  const { run, part, rank, graph, graphs, watchpoint, picture, layout, viewport, isLarge, setLarge } = shown
  const { zoomIn, zoomOut } = useReactFlow()
  const node = useView((view) => view.node)
  const chosen = useMarks((marks) => marks.chosen)
  const open = useOpenPart(part)
  const isOpen = open.scopes.length + open.clusters.length > 0
  const nodes = graphs.find((record) => record.name === graph)?.nodes ?? 0
  useActions(
    useMemo(() => {
      const show = (direction: Direction) => () => {
        if (!picture) return
        const boxes = reach(picture.wires, chosen, direction)
        useMarks.getState().set({ reach: { from: chosen, direction, boxes } })
      }
      const reveal = () => {
        const position = layout?.positions.get(chosen)
        if (position) viewport.goTo(position)
        else if (node) useView.getState().selectNode({ ...node })
      }
      const put = useOpenParts.getState().set
      const chooseFirst = chosen === '' ? t('chooseFirst') : undefined
      const offered: Omit<Action, 'group'>[] = [
        { id: 'graph.fit', label: t('fit'), keys: 'F', run: viewport.fitAll },
        { id: 'graph.zoomIn', label: t('zoomIn'), keys: 'shift+ArrowUp', run: () => void zoomIn() },
        { id: 'graph.zoomOut', label: t('zoomOut'), keys: 'shift+ArrowDown', run: () => void zoomOut() },
        {
          id: 'graph.reveal',
          label: t('reveal'),
          keys: 'G',
          disabled: node || chosen ? undefined : t('revealNone'),
          run: reveal,
        },
        {
          id: 'graph.closeAll',
          label: t('closeAll'),
          keys: 'shift+G',
          disabled: isOpen ? undefined : t('closeAllNone'),
          run: () => put(part, { scopes: [], clusters: [] }),
        },
        {
          id: 'graph.openAll',
          label: t('openAll'),
          disabled: nodes > MOST_NODES ? t('openAllMany', { most: count(MOST_NODES) }) : undefined,
          run: () => void everything({ run, rank, graph, watchpoint }).then((all) => put(part, all)),
        },
        {
          id: 'graph.fullScreen',
          label: isLarge ? t('smallScreen') : t('fullScreen'),
          keys: 'shift+F',
          run: () => setLarge(!isLarge),
        },
        { id: 'graph.upstream', label: t('upstream'), keys: 'U', disabled: chooseFirst, run: show('up') },
        {
          id: 'graph.downstream',
          label: t('downstream'),
          keys: 'D',
          disabled: chooseFirst,
          run: show('down'),
        },
      ]
      return offered.map((action) => ({ ...action, group: t('group') }))
    }, [
      t,
      run,
      part,
      rank,
      graph,
      watchpoint,
      picture,
      layout,
      viewport,
      isLarge,
      setLarge,
      zoomIn,
      zoomOut,
      node,
      chosen,
      isOpen,
      nodes,
    ]),
  )
}

/** Collect all scopes and clusters of a graph, level by level. */
async function everything(query: Omit<LevelQuery, 'scopes'>) {
  let level: GraphLevel
  let scopes: string[] = []
  let paths: string[] = []
  do {
    scopes = paths.slice(0, MOST_OPEN)
    level = await readLevel({ ...query, scopes })
    const entries = [...level.entries, ...level.opened.flatMap((scope) => scope.entries)]
    paths = entries.filter((entry) => entry.kind === 'scope').map((entry) => entry.path)
  } while (paths.length > scopes.length && scopes.length < MOST_OPEN)
  const clusters = new Set<string>()
  for (let before = -1; before < clusters.size;) {
    before = clusters.size
    const { boxes } = pictureOf(level, { clusters, parameters: false, constants: false })
    for (const box of boxes) if (box.kind === 'cluster') clusters.add(box.path)
  }
  return { scopes, clusters: [...clusters] }
}
