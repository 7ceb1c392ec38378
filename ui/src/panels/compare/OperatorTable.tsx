import { useElementSize, useMergedRef } from '@mantine/hooks'
import { IconArrowDown, IconArrowUp, IconFlag3Filled, IconPointFilled } from '~/parts/icons'
import { useLayoutEffect, useRef, useState, type KeyboardEvent } from 'react'
import { useTranslation } from 'react-i18next'
import tensors from '~/panels/tensors/tensors.module.css'
import { rowsInSight, scrollTo } from '~/panels/tensors/virtualRows'
import { useView } from '~/state/store'
import { addedShare, useLargestAdded } from './added'
import classes from './compare.module.css'
import type { OperatorFilter } from './compareState'
import { distanceText, errorText, numberText, operatorDistance } from './measures'
import { useOperators, type Shown } from './queries'
import type { ComparedOperator } from '~/api/types'
import { compareTexts } from './texts'
import { nodeOf } from './useCompareActions'

const ROW = 24
const HEAD = 28
const COLUMNS = ['position', 'name', 'rule', 'phase', 'relative', 'added', 'allowed'] as const
type Column = (typeof COLUMNS)[number]
const NUMBERS: Column[] = ['position', 'relative', 'allowed']

interface Props {
  filter: OperatorFilter
  total: number
  /** Index of the first divergence in the list. */
  firstAt: number | null
  shown: Shown
  onSort: (column: OperatorFilter['sort']) => void
}

function isSortable(column: Column): column is OperatorFilter['sort'] {
  return column === 'position' || column === 'name' || column === 'relative' || column === 'added'
}

/** A virtualised table of the operators, which opens at the first divergence. */
export function OperatorTable({ filter, total, firstAt, shown, onSort }: Props) {
  const { t } = useTranslation(compareTexts)
  const scroller = useRef<HTMLDivElement>(null)
  const { ref, height } = useElementSize()
  const merged = useMergedRef(ref, scroller)
  const [top, setTop] = useState(0)
  const [at, setAt] = useState(firstAt ?? -1)
  const node = useView((view) => view.node)
  const set = useView((view) => view.set)
  const { comparison, result, step } = shown
  const largest = useLargestAdded(step === null ? null : { id: comparison.id, rank: result.rank, step })
  const view = Math.max(0, height - HEAD)
  const sight = rowsInSight(total, ROW, top, view)
  const rows = useOperators(filter, sight.first, sight.last)
  const isSized = view > 0
  useLayoutEffect(() => {
    const box = scroller.current
    if (!box || !isSized || firstAt === null) return
    // A little above it, so that rows that still agree are visible too.
    const above = scrollTo(Math.max(0, firstAt - 3), total, ROW, Number.MAX_SAFE_INTEGER, view)
    box.scrollTop = above
    // Only once: do not undo the user's scrolling.
    // oxlint-disable-next-line react/exhaustive-deps
  }, [isSized])
  const select = (row: ComparedOperator) => useView.getState().selectNode(nodeOf(row, result.rank))
  const open = (row: ComparedOperator) => {
    select(row)
    set({ part: 'values' })
  }
  const moveTo = (row: number) => {
    const to = Math.min(total - 1, Math.max(0, row))
    setAt(to)
    const box = scroller.current
    if (box) box.scrollTop = scrollTo(to, total, ROW, box.scrollTop, view)
    const operator = rows.get(to)
    if (operator) select(operator)
  }
  const onKey = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor(view / ROW) - 1)
    const moves: Record<string, number> = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: total - 1,
    }
    const to = moves[event.key]
    const row = rows.get(at)
    if (to !== undefined) moveTo(to)
    else if (event.key === 'Enter' && row) open(row)
    else return
    event.preventDefault()
  }
  return (
    <div
      ref={merged}
      className={tensors['scroller']}
      role="grid"
      tabIndex={0}
      aria-label={t('table', { step })}
      aria-rowcount={total + 1}
      aria-colcount={COLUMNS.length}
      aria-activedescendant={at >= 0 ? `compared-row-${at}` : undefined}
      data-testid="compare-table"
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      onKeyDown={onKey}
    >
      <div role="rowgroup" className={`${tensors['head'] ?? ''} ${classes['wide'] ?? ''}`}>
        <div role="row" aria-rowindex={1} className={classes['row']}>
          {COLUMNS.map((column) => (
            <div
              key={column}
              role="columnheader"
              className={`${classes[column] ?? ''} ${classes['headCell'] ?? ''}`}
              data-number={NUMBERS.includes(column) || undefined}
              title={t(`columnHelp.${column}`)}
              aria-sort={
                filter.sort === column ? (filter.descending ? 'descending' : 'ascending') : undefined
              }
            >
              <Heading column={column} filter={filter} onSort={onSort} />
            </div>
          ))}
        </div>
      </div>
      <div role="rowgroup" className={classes['wide']} style={{ position: 'relative', height: sight.height }}>
        {Array.from({ length: Math.max(0, sight.last - sight.first + 1) }, (_, position) => {
          const index = sight.first + position
          const row = rows.get(index)
          return (
            <Row
              key={index}
              index={index}
              row={row}
              top={sight.topOf(index)}
              isFirst={index === firstAt}
              isAt={index === at}
              isChosen={row !== undefined && node?.name === row.name && node.rank === result.rank}
              largest={largest ?? 0}
              onClick={() => {
                setAt(index)
                if (row) select(row)
              }}
              onOpen={() => row && open(row)}
            />
          )
        })}
      </div>
    </div>
  )
}

function Heading(props: { column: Column; filter: OperatorFilter; onSort: Props['onSort'] }) {
  const { t } = useTranslation(compareTexts)
  const { column, filter, onSort } = props
  const name = t(`columns.${column}`)
  if (!isSortable(column)) return name
  const Arrow = filter.descending ? IconArrowDown : IconArrowUp
  return (
    <button
      type="button"
      className={classes['sort']}
      aria-label={t('sortBy', { column: name })}
      onClick={() => onSort(column)}
    >
      {name}
      {filter.sort === column && column !== 'position' && <Arrow size={12} />}
    </button>
  )
}

function Row(props: {
  index: number
  row: ComparedOperator | undefined
  top: number
  isFirst: boolean
  isAt: boolean
  isChosen: boolean
  largest: number
  onClick: () => void
  onOpen: () => void
}) {
  const { index, row, isFirst } = props
  const names = [tensors['row'], classes['wide'], classes['row'], props.isAt ? tensors['at'] : '']
  return (
    <div
      id={`compared-row-${index}`}
      role="row"
      aria-rowindex={index + 2}
      aria-selected={props.isChosen}
      aria-busy={row === undefined}
      className={names.join(' ')}
      style={{ transform: `translateY(${props.top}px)` }}
      data-testid="compared-row"
      data-node={row?.name}
      data-first={isFirst || undefined}
      data-divergent={row?.is_divergent || undefined}
      onClick={props.onClick}
      onDoubleClick={props.onOpen}
    >
      {row === undefined ? (
        <div
          className={tensors['loading']}
          style={{ width: `${30 + ((index * 7) % 40)}%`, marginLeft: 54 }}
        />
      ) : (
        <Cells row={row} isFirst={isFirst} largest={props.largest} />
      )}
    </div>
  )
}

function Cells({ row, isFirst, largest }: { row: ComparedOperator; isFirst: boolean; largest: number }) {
  const { t } = useTranslation(compareTexts)
  const names = [row.name, row.name_b].filter((name, position, all) => all.indexOf(name) === position)
  const cell = (column: Column) => ({
    role: 'gridcell',
    className: `${tensors['cell'] ?? ''} ${classes[column] ?? ''}`,
    'data-number': NUMBERS.includes(column) || undefined,
  })
  return (
    <>
      <div {...cell('position')}>{row.position}</div>
      <div {...cell('name')} title={`${names.join('\n→ ')}\n${row.type}`}>
        {isFirst ? (
          <IconFlag3Filled size={12} role="img" aria-label={t('firstMark')} className={classes['mark']} />
        ) : (
          row.is_divergent && (
            <IconPointFilled
              size={12}
              role="img"
              aria-label={t('divergentMark')}
              className={classes['mark']}
            />
          )
        )}
        {names.map((name, position) => (
          <span key={name} className={position === 0 ? classes['nameA'] : classes['nameB']}>
            <bdi>
              {position === 0 ? '' : '→ '}
              {name}
            </bdi>
          </span>
        ))}
      </div>
      <div {...cell('rule')}>{t(`rules.${row.rule}`, { defaultValue: row.rule })}</div>
      <div {...cell('phase')}>{t(`phases.${row.phase}`)}</div>
      <div {...cell('relative')} title={row.text}>
        {distanceText(operatorDistance(row), t)}
      </div>
      <div {...cell('added')}>
        <span className={classes['track']} aria-hidden>
          <span style={{ width: `${100 * shareOf(row, largest)}%` }} />
        </span>
        <span>
          {row.added == null ? (isBeyond(row) ? 'NaN/Inf' : '–') : errorText(Math.max(0, row.added))}
        </span>
      </div>
      <div {...cell('allowed')}>{numberText(row.allowed)}</div>
    </>
  )
}

function isBeyond(row: ComparedOperator): boolean {
  return operatorDistance(row).kind === 'beyond'
}

function shareOf(row: ComparedOperator, largest: number): number {
  if (row.added == null) return isBeyond(row) ? 1 : 0
  return addedShare(row.added, largest)
}
