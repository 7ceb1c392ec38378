import '@xyflow/react/dist/base.css'
import { Loader, Progress, Select } from '@mantine/core'
import { MiniMap, ReactFlow, ViewportPortal, type NodeMouseHandler } from '@xyflow/react'
import { useCallback, useEffect, useMemo, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { ApiError } from '~/api/client'
import { useWatchpoints } from '~/api/queries'
import type { GraphRecord } from '~/api/types'
import { Failure, Notice } from '~/parts/Notice'
import { graphThatRan, useGraphName } from '~/parts/variants'
import { useView } from '~/state/store'
import { Box, type BoxNode } from './Box'
import { BoxMenu, type MenuPosition } from './BoxMenu'
import css from './graph.module.css'
import { Legend } from './Legend'
import { useMarks } from './marks'
import { openPart, useOpenPart, useOpenParts, withClosed, withOpen } from './openPart'
import { pictureOf, type Box as BoxRecord } from './picture'
import { ReachStrip } from './ReachStrip'
import { graphTexts } from './texts'
import { Toolbar } from './Toolbar'
import { useGraphActions } from './useGraphActions'
import { useKeyboard } from './useKeyboard'
import { useLayout } from './useLayout'
import { useLevel } from './useLevel'
import { useSelection } from './useSelection'
import { useViewport } from './useViewport'
import { Wires } from './Wires'

const nodeTypes = { box: Box }

const AS_IT_RAN = 'as it ran'

interface Props {
  run: string
  rank: number
  graph: string
  graphs: readonly GraphRecord[]
}

/** The picture of one graph, with its actions. */
export function Drawing({ run, rank, graph, graphs }: Props) {
  const { t } = useTranslation(graphTexts)
  // Variants share the open scopes: most scopes are in all of them.
  const part = `${run}/${rank}`
  const chosen = useView((view) => view.watchpoint)
  const { data: watchpoints } = useWatchpoints()
  // It may have been deleted, also by another user.
  const watchpoint = watchpoints?.some((record) => record.id === chosen) ? chosen : null
  const selectNode = useView((view) => view.selectNode)
  const openTensor = useView((view) => view.openTensor)
  const open = useOpenPart(part)
  const parameters = useOpenParts((parts) => parts.parameters)
  const constants = useOpenParts((parts) => parts.constants)
  const level = useLevel({ run, rank, graph, watchpoint, scopes: open.scopes })
  const newPicture = useMemo(
    () => level.data && pictureOf(level.data, { clusters: new Set(open.clusters), parameters, constants }),
    [level.data, open.clusters, parameters, constants],
  )
  const { picture, layout, isBusy, error } = useLayout(newPicture)
  const [frame, setFrame] = useState<HTMLDivElement | null>(null)
  const viewport = useViewport(frame, layout)
  const [isLarge, setLarge] = useState(false)
  const [menu, setMenu] = useState<MenuPosition | null>(null)
  const [isFar, setFar] = useState(false)

  useEffect(() => () => useMarks.getState().set({ chosen: '', current: '', reach: null }), [])

  const { hold } = viewport
  const toggle = useCallback(
    (box: BoxRecord) => {
      hold(box.id, !box.isOpen)
      const before = openPart(part)
      const after = box.isOpen
        ? withClosed(before, box.path)
        : box.kind === 'cluster'
          ? withOpen(before, [], [box.path])
          : withOpen(before, [box.path])
      useOpenParts.getState().set(part, after)
    },
    [hold, part],
  )

  const choose = useCallback(
    (box: BoxRecord, takesFocus = false) => {
      useMarks.getState().set({ chosen: box.id, takesFocus })
      if (box.kind !== 'scope' && box.kind !== 'cluster') selectNode({ rank, graph, name: box.path })
    },
    [selectNode, rank, graph],
  )

  const enter = useCallback(
    (box: BoxRecord) => {
      if (box.kind === 'scope' || box.kind === 'cluster') toggle(box)
      else openTensor(`${rank}/${graph}/${box.path}:0`)
    },
    [toggle, openTensor, rank, graph],
  )

  useSelection({ part, rank, graph, picture, layout, viewport })
  useGraphActions({
    run,
    part,
    rank,
    graph,
    graphs,
    watchpoint,
    picture,
    layout,
    viewport,
    isLarge,
    setLarge,
  })
  const onKeyDown = useKeyboard({
    picture,
    layout,
    viewport,
    choose,
    enter,
    leave: () => {
      useMarks.getState().set({ reach: null })
      setLarge(false)
    },
  })

  const nodes = useMemo<BoxNode[]>(() => {
    if (!picture || !layout) return []
    const depths = new Map<string, number>()
    return picture.boxes.flatMap((box) => {
      const depth = box.parent === null ? 0 : (depths.get(box.parent) ?? 0) + 1
      depths.set(box.id, depth)
      const position = layout.positions.get(box.id)
      if (!position) return []
      const { x, y, width, height } = position
      return [
        {
          id: box.id,
          type: 'box' as const,
          position: { x, y },
          width,
          height,
          measured: { width, height },
          data: { box, toggle },
          zIndex: box.isOpen ? Math.min(depth, 400) : 1000,
          className: box.isOpen ? (depth % 2 ? (css['odd'] ?? '') : (css['even'] ?? '')) : '',
        },
      ]
    })
  }, [picture, layout, toggle])

  const onClick: NodeMouseHandler<BoxNode> = useCallback((_, node) => choose(node.data.box), [choose])
  const onDoubleClick: NodeMouseHandler<BoxNode> = useCallback((_, node) => enter(node.data.box), [enter])
  const onMenu: NodeMouseHandler<BoxNode> = useCallback(
    (event, node) => {
      event.preventDefault()
      choose(node.data.box)
      setMenu({ x: event.clientX, y: event.clientY, box: node.data.box })
    },
    [choose],
  )

  if (level.error && !level.data) {
    const { error: reason } = level
    const isTooLarge = reason instanceof ApiError && reason.code === 'graph-too-large'
    if (!isTooLarge) return <Failure error={reason} retry={() => void level.refetch()} />
    return (
      <Notice
        title={t('tooLarge')}
        testId="graph-too-large"
      >{`${reason.message}. ${t('tooLargeHow')}`}</Notice>
    )
  }
  if (error) return <Failure error={error} />
  return (
    <div
      ref={setFrame}
      className={css['frame']}
      data-large={isLarge || undefined}
      data-far={isFar || undefined}
      data-testid="graph-frame"
      data-busy={level.isFetching || isBusy}
      role="group"
      aria-label={t('picture', { graph })}
      tabIndex={0}
      onKeyDown={onKeyDown}
    >
      <ReactFlow
        nodes={nodes}
        nodeTypes={nodeTypes}
        onlyRenderVisibleElements
        nodesDraggable={false}
        nodesConnectable={false}
        nodesFocusable={false}
        elementsSelectable={false}
        disableKeyboardA11y
        zoomOnDoubleClick={false}
        minZoom={0.04}
        maxZoom={2}
        onNodeClick={onClick}
        onNodeDoubleClick={onDoubleClick}
        onNodeContextMenu={onMenu}
        onMove={(_, { zoom }) => setFar(zoom < 0.5)}
        attributionPosition="bottom-left"
      >
        <ViewportPortal>{picture && layout && <Wires picture={picture} layout={layout} />}</ViewportPortal>
        <MiniMap<BoxNode>
          className={css['minimap'] ?? ''}
          style={{ width: 132, height: 92 }}
          ariaLabel={t('minimap')}
          nodeClassName={(node) =>
            (node.data.box.isOpen ? css['mini-open'] : node.data.box.hits ? css['mini-hit'] : css['mini']) ??
            ''
          }
          nodeBorderRadius={2}
          pannable
          zoomable
        />
      </ReactFlow>
      {!layout && (
        <div className={css['waiting']}>
          <Notice icon={<Loader size="sm" />} title={level.data ? t('arranging') : t('loading')} />
        </div>
      )}
      {(isBusy || level.isPlaceholderData) && picture && (
        <Progress
          className={css['busy'] ?? ''}
          value={100}
          size={2}
          animated
          radius={0}
          aria-label={t('arranging')}
        />
      )}
      {graphs.length > 1 && <GraphChoice graph={graph} graphs={graphs} />}
      <Toolbar isLarge={isLarge} />
      <Legend isTruncated={picture?.isTruncated ?? false} />
      <ReachStrip picture={picture} />
      <BoxMenu
        position={menu}
        close={() => setMenu(null)}
        rank={rank}
        graph={graph}
        wires={picture?.wires ?? []}
        toggle={toggle}
      />
    </div>
  )
}

/** The choice of the graph that is drawn: by default the one that ran in the step shown. */
function GraphChoice({ graph, graphs }: Pick<Props, 'graph' | 'graphs'>) {
  const { t } = useTranslation(graphTexts)
  const variant = useView((view) => view.graph)
  const set = useView((view) => view.set)
  const graphName = useGraphName()
  // Of several graphs that ran in the step, the one that is drawn.
  const ran = graphs.find((record) => record.name === graph && record.ran) ?? graphThatRan(graphs)
  // A node that did not run in this step is shown in a graph that has it.
  const isOfNode = variant === '' && ran?.name !== graph
  return (
    <Select
      className={css['choice'] ?? ''}
      aria-label={t('choose')}
      data={[
        { value: AS_IT_RAN, label: t(ran?.ran ? 'asItRan' : 'newest', { name: ran?.name }) },
        ...graphs.map((record) => ({ value: record.name, label: graphName(record) })),
      ]}
      value={variant || (isOfNode ? graph : AS_IT_RAN)}
      onChange={(name) => {
        if (name !== AS_IT_RAN && name !== null) set({ graph: name })
        else set(isOfNode ? { graph: '', node: null } : { graph: '' })
      }}
      allowDeselect={false}
    />
  )
}
