import { IconAlertTriangleFilled, IconChevronRight, IconPlayerPlayFilled } from '@tabler/icons-react'
import type { TFunction } from 'i18next'
import { memo, useEffect } from 'react'
import { count } from '~/parts/numbers'
import { entryKind, KindIcon } from './KindIcon'
import classes from './nodes.module.css'
import { isBranch, type EntryRow, type Row } from './rows'
import { useTreeState } from './treeState'

export const ROW_HEIGHT = 22
const INDENT = 12

/** How far the box of a row is ticked; null: it has none. */
export type Tick = 'none' | 'some' | 'all' | 'never' | 'unknown' | null

interface TreeRowProps {
  t: TFunction
  id: string
  row: Row
  index: number
  top: number
  isCursor: boolean
  isSelected: boolean
  /** The process stands at this node. */
  isHere: boolean
  tick: Tick
  /** Why ticks cannot be changed now. */
  locked: string | undefined
  /** What of the name was searched for. */
  searched: string
}

export const TreeRow = memo(function TreeRow(props: TreeRowProps) {
  const { row } = props
  if (row.kind === 'entry') return <Entry {...props} row={row} />
  if (row.kind === 'loading') return <Loading {...props} row={row} />
  return (
    <div {...common(props)} className={classes['row']} title={row.message} data-part="again">
      <Indent depth={row.depth} />
      <span className={classes['twist']} />
      <IconAlertTriangleFilled size={12} aria-hidden />
      <span className={classes['more']}>{row.message}</span>
      <span className={classes['end']}>{props.t('again')}</span>
    </div>
  )
})

function common({ id, row, index, top, isCursor }: TreeRowProps) {
  return {
    id,
    role: 'treeitem',
    'aria-level': row.depth + 1,
    'aria-posinset': row.nth,
    'aria-setsize': row.siblings,
    'data-index': index,
    'data-cursor': isCursor || undefined,
    style: { top },
  } as const
}

function Loading(props: TreeRowProps & { row: Extract<Row, { kind: 'loading' }> }) {
  const { page, depth, nth } = props.row
  const want = useTreeState((tree) => tree.want)
  useEffect(() => want(page), [want, page])
  return (
    <div {...common(props)} className={classes['row']} aria-busy>
      <Indent depth={depth} />
      <span className={classes['twist']} />
      {/* As uneven as names are. */}
      <span className={classes['waiting']} style={{ width: 60 + ((nth * 37) % 70) }} />
    </div>
  )
}

function Entry(props: TreeRowProps & { row: EntryRow }) {
  const { t, row, isSelected, isHere, tick, locked, searched } = props
  const { entry } = row
  const kind = entryKind(entry)
  const branch = isBranch(entry)
  const hits = entry.hits > 0 ? t('hits', { count: entry.hits }) : ''
  const below = branch && entry.nodes > 0 ? t('below', { count: entry.nodes, nodes: count(entry.nodes) }) : ''
  const name = entry.path.startsWith('@') ? t(`kind.${entry.kind}`) : entry.label || entry.path
  const type = kind === 'parameter' || branch || isToldByName(entry) ? '' : entry.type
  const note = row.below ?? (branch || entry.kind !== 'operator' ? '' : type)
  const title = [
    entry.path.startsWith('@') || entry.kind === 'graph' ? name : entry.path,
    [t(`kind.${kind}`), entry.kind === 'operator' ? entry.type : ''].filter(Boolean).join(' · '),
    [below, hits].filter(Boolean).join(', '),
  ]
  return (
    <div
      {...common(props)}
      className={classes['row']}
      data-testid="node-row"
      data-path={entry.path}
      data-graph={row.graph}
      data-kind={entry.kind}
      data-hits={entry.hits || undefined}
      aria-label={[name, t(`kind.${kind}`), hits].filter(Boolean).join(', ')}
      aria-expanded={row.isOpen ?? undefined}
      aria-selected={isSelected}
      aria-checked={tick === null ? undefined : tick === 'some' ? 'mixed' : tick === 'all'}
      title={title.filter(Boolean).join('\n')}
    >
      <Indent depth={row.depth} />
      <span className={classes['twist']} data-part={row.isOpen === null ? undefined : 'twist'}>
        {row.isOpen !== null && <IconChevronRight size={13} aria-hidden />}
      </span>
      {tick !== null && (
        <input
          type="checkbox"
          className={classes['tick']}
          data-part="tick"
          tabIndex={-1}
          readOnly
          aria-label={t('watch', { name })}
          title={tick === 'never' ? t('neverWatched') : locked}
          checked={tick === 'all'}
          disabled={tick === 'never' || tick === 'unknown' || locked !== undefined}
          ref={(box) => {
            if (box) box.indeterminate = tick === 'some'
          }}
        />
      )}
      <KindIcon kind={kind} />
      <span className={classes['label']}>
        <Searched text={name} searched={searched} />
      </span>
      <span className={classes['more']}>{note}</span>
      <span className={classes['end']}>
        {isHere && (
          <span className={classes['here']} role="img" aria-label={t('here')} title={t('here')}>
            <IconPlayerPlayFilled size={11} />
          </span>
        )}
        {entry.hits > 0 && (
          <span className={classes['hits']} title={hits}>
            <IconAlertTriangleFilled size={11} aria-hidden />
            {count(entry.hits)}
          </span>
        )}
        {branch && entry.nodes > 0 && <span>{count(entry.nodes)}</span>}
      </span>
    </div>
  )
}

function Indent({ depth }: { depth: number }) {
  return depth === 0 ? (
    <span style={{ width: 2, flex: 'none' }} />
  ) : (
    <span className={classes['indent']} style={{ width: depth * INDENT - 8 }} />
  )
}

/** `Conv2D-op12` need not be said to be a Conv2D. */
function isToldByName(entry: EntryRow['entry']): boolean {
  return entry.label.toLowerCase().startsWith(entry.type.toLowerCase())
}

function Searched({ text, searched }: { text: string; searched: string }) {
  const start = searched ? text.toLowerCase().indexOf(searched.toLowerCase()) : -1
  if (start === -1) return text
  const end = start + searched.length
  return (
    <>
      {text.slice(0, start)}
      <mark>{text.slice(start, end)}</mark>
      {text.slice(end)}
    </>
  )
}
