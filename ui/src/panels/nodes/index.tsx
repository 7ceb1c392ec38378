import { useDebouncedValue } from '@mantine/hooks'
import { IconFocusCentered, IconFoldUp } from '~/parts/icons'
import { useQueryClient } from '@tanstack/react-query'
import { useEffect, useMemo, useRef, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { Button } from '@mantine/core'
import { useGraphs, useSession } from '~/api/queries'
import { AddedLegend } from '~/panels/compare/AddedMark'
import { ActionButton } from '~/parts/ActionButton'
import { Failure, Notice } from '~/parts/Notice'
import { TreeView, type TreeHandle } from '~/parts/TreeView'
import { useVariants } from '~/parts/variants'
import { useView } from '~/state/store'
import { useActions } from '~/state/useActions'
import type { Action } from '~/state/actions'
import { Filters } from './Filters'
import classes from './nodes.module.css'
import { noNodeFilter, type Filter } from './filter'
import { forgetPages, treePage, useTreeView } from './pages'
import { openBelow, openChain } from './reveal'
import { graphOf, isBranch, rowKey, type EntryRow, type Row } from './rows'
import { RowMenu, type RowMenuState } from './RowMenu'
import { SearchStrip, TickStrip } from './Strips'
import { nodesTexts } from './texts'
import { TreeRow } from './TreeRow'
import { useTreeState } from './treeState'
import { useRows } from './useRows'
import { useSelection } from './useSelection'
import { useTicking } from './useTicking'

const TYPING_MS = 150
const ROW_HEIGHT = 22

/** The tree of all nodes, with filters and ticks for a watchpoint; it follows the selected node. */
export function Nodes() {
  const { t } = useTranslation(nodesTexts)
  const client = useQueryClient()
  const run = useView((view) => view.run)
  const stack = useView((view) => view.stackFilter)
  const setView = useView((view) => view.set)
  const selectNode = useView((view) => view.selectNode)
  const parts = useTreeState((tree) => tree.filter)
  const cursor = useTreeState((tree) => tree.cursor)
  const target = useTreeState((tree) => tree.target)
  const setTree = useTreeState((tree) => tree.set)
  const { data: session } = useSession()
  const graphs = useGraphs()
  const filter: Filter = useMemo(() => ({ ...parts, stack }), [parts, stack])
  const [settled] = useDebouncedValue(filter, TYPING_MS)
  const view = useTreeView()
  const shown = useRows(view, settled)
  const { rows, graph, isFiltered, isTree, search } = shown
  const selection = useSelection(view, shown)
  const ticking = useTicking(view, settled, shown)
  const [menu, setMenu] = useState<RowMenuState | null>(null)
  const input = useRef<HTMLInputElement>(null)
  const tree = useRef<TreeHandle>(null)

  useEffect(() => {
    if (useTreeState.getState().run === run) return
    forgetPages()
    useTreeState.getState().reset(run)
  }, [run])

  const change = ({ stack: line, ...others }: Partial<Filter>) => {
    setTree({ filter: { ...parts, ...others }, closed: new Set() })
    if (line !== undefined) setView({ stackFilter: line })
  }
  const clear = () => change({ ...noNodeFilter, stack: '' })

  const open = (row: EntryRow, isOpen: boolean) => {
    const { setOpen, setClosed } = useTreeState.getState()
    if (isFiltered) setClosed([row.key], !isOpen)
    else if (isOpen) openChain(client, view, row.graph, row.entry.path).catch(() => undefined)
    else setOpen([row.key], false)
  }
  const show = (row: EntryRow) =>
    selectNode({ rank: row.rank, graph: graphOf(row.graph, row.entry), name: row.entry.path }, 'graph')
  const act = (row: Row, part: string | undefined) => {
    if (row.kind === 'failed') {
      void client.refetchQueries({ queryKey: treePage(view, row.page).queryKey, exact: true })
    } else if (row.kind === 'entry') {
      if (part === 'tick') ticking.onTick(row)
      else if (row.isOpen === null) selection.select(row)
      else open(row, !row.isOpen)
    }
  }

  const { show: reveal, node } = selection
  const actions = useMemo(
    (): Action[] => [
      {
        id: 'nodes.filter',
        label: t('filter'),
        keys: '/',
        group: t('group'),
        run: () => input.current?.focus(),
      },
      {
        id: 'nodes.reveal',
        label: t('reveal'),
        keys: 'alt+L',
        group: t('group'),
        disabled: node ? undefined : t('noneSelected'),
        run: () => {
          setTree({ filter: noNodeFilter })
          setView({ stackFilter: '' })
          reveal()
        },
      },
      {
        id: 'nodes.collapse',
        label: t('collapse'),
        keys: 'alt+shift+C',
        group: t('group'),
        run: () => {
          const branches = rows.loadedRows().filter((row) => row.kind === 'entry' && isBranch(row.entry))
          if (isFiltered) setTree({ closed: new Set(branches.map((row) => row.key)) })
          else setTree({ open: new Set([rowKey(graph, '', true)]) })
        },
      },
    ],
    [t, node, reveal, rows, graph, isFiltered, setTree, setView],
  )
  useActions(actions)

  const rank = session?.ranks.find((record) => record.rank === view.rank)
  const here = rank?.node ?? ''
  const variants = useVariants()
  return (
    <div className="fill" data-testid="panel-nodes">
      <div className={classes['head']}>
        <Filters
          input={input}
          filter={filter}
          graphs={graphs.data ?? []}
          onChange={change}
          onDown={() => {
            const first =
              rows.loadedRows().find((row) => row.kind === 'entry' && row.isOpen === null) ?? rows.at(0)
            if (isFiltered && first) setTree({ cursor: first.key, target: first.key })
            tree.current?.focus()
          }}
        >
          <ActionButton id="nodes.reveal" icon={<IconFocusCentered size={15} />} />
          <ActionButton id="nodes.collapse" icon={<IconFoldUp size={15} />} />
        </Filters>
        <AddedLegend isStrip />
        {isFiltered && <SearchStrip total={search.total} isTree={isTree} onClear={clear} />}
        {ticking.watchpoint && (
          <TickStrip
            watchpoint={ticking.watchpoint}
            isFiltered={isFiltered}
            locked={ticking.locked}
            onTickAll={ticking.onTickAll}
          />
        )}
      </div>
      {graphs.data?.length === 0 ? (
        <Notice title={t('noGraph')}>{t('noGraphWhy')}</Notice>
      ) : graphs.error ? (
        <Failure error={graphs.error} retry={() => void graphs.refetch()} />
      ) : isFiltered && search.error ? (
        <Failure error={search.error} retry={search.retry} />
      ) : isFiltered && search.total === 0 ? (
        <Notice title={t('nothing')}>
          <Button variant="default" onClick={clear}>
            {t('clearAll')}
          </Button>
        </Notice>
      ) : (
        <TreeView<Row>
          ref={tree}
          label={t(isFiltered ? 'list' : 'tree')}
          testId="node-tree"
          rows={rows}
          rowHeight={ROW_HEIGHT}
          cursor={cursor}
          target={target}
          initialOffset={() => useTreeState.getState().scrollOffset}
          onStateChange={setTree}
          onOpen={(row, isOpen) => row.kind === 'entry' && open(row, isOpen)}
          onAct={act}
          onSpace={(row) =>
            act(row, row.kind === 'entry' && ticking.tickOf(row) !== null ? 'tick' : undefined)
          }
          onDouble={(row, part) => {
            if (row.kind === 'entry' && row.isOpen === null && part === undefined) show(row)
          }}
          onMenu={(row, x, y) => row.kind === 'entry' && setMenu({ row, x, y })}
          onType={() => input.current?.focus()}
          draw={(row, attributes) => (
            <TreeRow
              key={row.key}
              t={t}
              row={row}
              attributes={attributes}
              isSelected={row.key === selection.selected}
              isHere={here !== '' && row.kind === 'entry' && row.isOpen === null && row.entry.path === here}
              {...markOf(row, variants)}
              tick={row.kind === 'entry' ? ticking.tickOf(row) : null}
              locked={ticking.locked}
              searched={isFiltered ? settled.name.trim() : ''}
            />
          )}
        />
      )}
      <RowMenu
        menu={menu}
        onClose={() => setMenu(null)}
        onOpen={open}
        onOpenBelow={
          isFiltered
            ? undefined
            : (row) => void openBelow(client, view, row.graph, row.entry.path).catch(() => undefined)
        }
        onShow={show}
      />
    </div>
  )
}

/** Return the texts about the variants that have a row; as plain values, so that unchanged rows are not rendered again. */
function markOf(row: Row, variants: ReturnType<typeof useVariants>) {
  const texts = row.kind === 'entry' ? variants(row.entry.graphs) : null
  const isMarked = row.kind === 'entry' && row.marked.length > 0
  return {
    mark: isMarked && texts ? texts.mark : '',
    markTitle: texts?.title ?? '',
    isAbsent: texts?.isAbsent ?? false,
  }
}
