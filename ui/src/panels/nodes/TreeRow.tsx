import { IconAlertTriangleFilled, IconChevronRight, IconPlayerPlayFilled } from '~/parts/icons'
import type { TFunction } from 'i18next'
import { memo, useEffect } from 'react'
import { AddedMark } from '~/panels/compare/AddedMark'
import { count } from '~/parts/numbers'
import tree from '~/parts/TreeView.module.css'
import { Indent } from '~/parts/TreeIndent'
import type { LineAttributes } from '~/parts/TreeView'
import { entryKind, KindIcon } from './KindIcon'
import classes from './nodes.module.css'
import { isBranch, type EntryRow, type Row } from './rows'
import { useTreeState } from './treeState'

const LONG = 24
const KEPT_END = 12
const MOST_KEPT = 17

/** State of the checkbox of a row; null: it has none. */
export type Tick = 'none' | 'some' | 'all' | 'never' | 'unknown' | null

interface TreeRowProps {
  t: TFunction
  row: Row
  attributes: LineAttributes
  isSelected: boolean
  /** The process is stopped at this node. */
  isHere: boolean
  tick: Tick
  /** Why ticks cannot be changed now. */
  locked: string | undefined
  /** The part of the name that was searched for. */
  searched: string
  /** The variants of the program that have the row, if they differ from those of its parent row. */
  mark: string
  /** All variants that have the row; empty: all of the program. */
  markTitle: string
  /** None of these ran in the step shown. */
  isAbsent: boolean
}

export const TreeRow = memo(
  function TreeRow(props: TreeRowProps) {
    const { row } = props
    if (row.kind === 'entry') return <Entry {...props} row={row} />
    if (row.kind === 'loading') return <Loading {...props} row={row} />
    return (
      <div {...props.attributes} className={tree['row']} title={row.message}>
        <Indent depth={row.depth} />
        <span className={tree['twist']} />
        <IconAlertTriangleFilled size={12} aria-hidden />
        <span className={tree['more']}>{row.message}</span>
        <span className={tree['end']}>{props.t('again')}</span>
      </div>
    )
  },
  ({ attributes, ...before }, { attributes: nextAttributes, ...after }) =>
    Object.entries(before).every(([name, value]) => value === after[name as keyof typeof after]) &&
    attributes.id === nextAttributes.id &&
    attributes.style.top === nextAttributes.style.top &&
    attributes['data-cursor'] === nextAttributes['data-cursor'],
)

function Loading({ t, row, attributes }: TreeRowProps & { row: Extract<Row, { kind: 'loading' }> }) {
  const { page, depth, nth } = row
  const requestPage = useTreeState((state) => state.requestPage)
  useEffect(() => requestPage(page), [requestPage, page])
  return (
    <div {...attributes} className={tree['row']} aria-busy aria-label={t('loading')}>
      <Indent depth={depth} />
      <span className={tree['twist']} />
      {/* As uneven as names. */}
      <span className={tree['waiting']} style={{ width: 60 + ((nth * 37) % 70) }} />
    </div>
  )
}

function Entry(props: TreeRowProps & { row: EntryRow }) {
  const { t, row, attributes, isSelected, isHere, tick, locked, searched, mark, markTitle, isAbsent } = props
  const { entry } = row
  const kind = entryKind(entry)
  const branch = isBranch(entry)
  const hits = entry.hits > 0 ? t('hits', { count: entry.hits }) : ''
  const below = branch && entry.nodes > 0 ? t('below', { count: entry.nodes, nodes: count(entry.nodes) }) : ''
  const name = entry.path.startsWith('@') ? t(`kind.${entry.kind}`) : entry.label || entry.path
  const title = [
    entry.path.startsWith('@') ? name : entry.path,
    [t(`kind.${kind}`), entry.kind === 'operator' ? entry.type : ''].filter(Boolean).join(' · '),
    [below, hits].filter(Boolean).join(', '),
    markTitle,
  ]
  return (
    <div
      {...attributes}
      className={tree['row']}
      data-testid="node-row"
      data-path={entry.path}
      data-graph={entry.graph}
      data-absent={isAbsent || undefined}
      data-kind={entry.kind}
      data-hits={entry.hits || undefined}
      aria-selected={isSelected}
      aria-checked={tick === null ? undefined : tick === 'some' ? 'mixed' : tick === 'all'}
      title={title.filter(Boolean).join('\n')}
    >
      <Indent depth={row.depth} />
      <span className={tree['twist']} data-part={row.isOpen === null ? undefined : 'twist'}>
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
      <KindIcon kind={kind} label={t(`kind.${kind}`)} />
      <Name name={name} searched={searched} />
      <span className={row.below === undefined ? tree['more'] : `${tree['more']} ${tree['ending']}`}>
        <bdi>{note(row)}</bdi>
      </span>
      <span className={tree['end']}>
        {mark !== '' && (
          <span className={classes['mark']} data-testid="variant-mark">
            {mark}
          </span>
        )}
        {(branch || entry.kind === 'operator') && !entry.path.startsWith('@') && (
          <AddedMark paths={[entry.path]} />
        )}
        {isHere && (
          <span className={classes['here']} role="img" aria-label={t('here')} title={t('here')}>
            <IconPlayerPlayFilled size={11} />
          </span>
        )}
        {entry.hits > 0 && (
          <span className={tree['hits']} title={hits}>
            <IconAlertTriangleFilled size={11} aria-hidden />
            {count(entry.hits)}
          </span>
        )}
        {branch && entry.nodes > 0 && <span>{count(entry.nodes)}</span>}
      </span>
    </div>
  )
}

/** Return what the name does not show: the scope of a matching node, or its type unless the name starts with it. */
function note({ entry, below }: EntryRow): string {
  if (below !== undefined) return below
  if (entry.kind !== 'operator') return ''
  return entry.label.toLowerCase().startsWith(entry.type.toLowerCase()) ? '' : entry.type
}

/** Return the start of the end of a long name, which stays visible: at a word boundary if possible. */
function cutOf(name: string): number {
  if (name.length <= LONG) return name.length
  const word = name.slice(-MOST_KEPT, -4).search(/[._/-]/)
  return word === -1 ? name.length - KEPT_END : name.length - MOST_KEPT + word
}

/** A name; a long one is truncated in the middle: `transformer.blo…36.weight`. */
function Name({ name, searched }: { name: string; searched: string }) {
  const cut = cutOf(name)
  const from = searched ? name.toLowerCase().indexOf(searched.toLowerCase()) : -1
  const to = from === -1 ? -1 : from + searched.length
  return (
    <span className={tree['name']}>
      <span className={tree['label']}>
        <Marked text={name.slice(0, cut)} from={from} to={to} />
      </span>
      {cut < name.length && (
        <span className={tree['tail']}>
          <Marked text={name.slice(cut)} from={Math.max(from - cut, 0)} to={to - cut} />
        </span>
      )}
    </span>
  )
}

function Marked({ text, from, to }: { text: string; from: number; to: number }) {
  if (from < 0 || to <= from || from >= text.length) return text
  return (
    <>
      {text.slice(0, from)}
      <mark>{text.slice(from, to)}</mark>
      {text.slice(to)}
    </>
  )
}
