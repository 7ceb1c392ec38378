import { useElementSize, useMergedRef } from '@mantine/hooks'
import { IconArrowDown, IconArrowUp } from '~/parts/icons'
import { useRef, useState, type KeyboardEvent } from 'react'
import { useTranslation } from 'react-i18next'
import { useIsSelected } from '~/api/queries'
import type { StatisticsRow } from '~/api/types'
import { useView, withoutStep } from '~/state/store'
import { badOf, COLUMNS, WIDTH, type Column } from './columns'
import { useRows, type TableQuery } from './queries'
import classes from './tensors.module.css'
import { tensorsTexts } from './texts'
import { rowsInSight, scrollTo } from './virtualRows'

const ROW = 24
const HEAD = 28

interface Props {
  query: TableQuery
  total: number
  step: number
  onSort: (column: Column) => void
}

/** A virtualised table; rows are loaded when they become visible. */
export function Table({ query, total, step, onSort }: Props) {
  const { t } = useTranslation(tensorsTexts)
  const scroller = useRef<HTMLDivElement>(null)
  const { ref, height } = useElementSize()
  const merged = useMergedRef(ref, scroller)
  const [top, setTop] = useState(0)
  const [at, setAt] = useState(-1)
  const isSelected = useIsSelected()
  const view = Math.max(0, height - HEAD)
  const sight = rowsInSight(total, ROW, top, view)
  const rows = useRows(query, sight.first, sight.last)
  const moveTo = (row: number) => {
    const to = Math.min(total - 1, Math.max(0, row))
    setAt(to)
    const box = scroller.current
    if (box) box.scrollTop = scrollTo(to, total, ROW, box.scrollTop, view)
    const tensor = rows.get(to)
    if (tensor) select(tensor)
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
  const indexes = Array.from(
    { length: Math.max(0, sight.last - sight.first + 1) },
    (_, index) => sight.first + index,
  )
  return (
    <div
      ref={merged}
      className={classes['scroller']}
      role="grid"
      tabIndex={0}
      aria-label={t('table', { step })}
      aria-rowcount={total + 1}
      aria-colcount={COLUMNS.length}
      aria-activedescendant={at >= 0 ? `tensors-row-${at}` : undefined}
      data-testid="tensors-table"
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      onKeyDown={onKey}
    >
      <div role="rowgroup" className={classes['head']} style={{ width: WIDTH }}>
        <div role="row" aria-rowindex={1} style={{ display: 'flex' }}>
          {COLUMNS.map((column) => (
            <Heading key={column.id} column={column} query={query} onSort={onSort} />
          ))}
        </div>
      </div>
      <div role="rowgroup" style={{ position: 'relative', height: sight.height, width: WIDTH }}>
        {indexes.map((index) => {
          const row = rows.get(index)
          return (
            <Row
              key={index}
              index={index}
              row={row}
              top={sight.topOf(index)}
              isAt={index === at}
              isChosen={row !== undefined && isSelected(row)}
              onClick={() => setAt(index)}
            />
          )
        })}
      </div>
    </div>
  )
}

function select({ rank, graph, node }: StatisticsRow) {
  useView.getState().selectNode({ rank, graph, name: node })
}

function open(row: StatisticsRow) {
  select(row)
  useView.getState().openTensor(withoutStep(row.address))
}

function Heading({
  column,
  query,
  onSort,
}: {
  column: Column
  query: TableQuery
  onSort: (column: Column) => void
}) {
  const { t } = useTranslation(tensorsTexts)
  const isSorted = query.sort === column.id
  const Arrow = query.descending ? IconArrowDown : IconArrowUp
  const name = t(`columns.${column.id}`)
  const number = column.isNumber ? classes['number'] : ''
  return (
    <div
      role="columnheader"
      aria-sort={isSorted ? (query.descending ? 'descending' : 'ascending') : 'none'}
      style={{ width: column.width, flex: 'none' }}
      title={t(`columnHelp.${column.id}`)}
    >
      {column.isSortable ? (
        <button
          type="button"
          className={`${classes['column']} ${number} ${isSorted ? classes['sorted'] : ''}`}
          aria-label={t('sortBy', { column: name })}
          onClick={() => onSort(column)}
        >
          {name}
          {isSorted && <Arrow size={12} style={{ flex: 'none' }} />}
        </button>
      ) : (
        <span className={classes['column']} style={{ cursor: 'default' }}>
          {name}
        </span>
      )}
    </div>
  )
}

function Row(props: {
  index: number
  row: StatisticsRow | undefined
  top: number
  isAt: boolean
  isChosen: boolean
  onClick: () => void
}) {
  const { index, row, top } = props
  const { t } = useTranslation(tensorsTexts)
  const bad = row ? badOf(row) : { nan: 0, inf: 0 }
  const isBad = bad.nan + bad.inf > 0
  return (
    <div
      id={`tensors-row-${index}`}
      role="row"
      aria-rowindex={index + 2}
      aria-selected={props.isChosen}
      aria-busy={row === undefined}
      className={`${classes['row']} ${isBad ? classes['bad'] : ''} ${props.isAt ? classes['at'] : ''}`}
      style={{ transform: `translateY(${top}px)`, width: WIDTH }}
      data-testid="tensor-row"
      data-node={row?.node}
      title={row?.statistics.partial ? t('partial') : undefined}
      onClick={() => {
        props.onClick()
        if (row) select(row)
      }}
      onDoubleClick={() => row && open(row)}
    >
      {COLUMNS.map((column) => (
        <div
          key={column.id}
          role="gridcell"
          className={`${classes['cell']} ${column.isNumber ? classes['number'] : ''} ${column.id === 'node' ? classes['node'] : ''} ${
            column.id === 'non_finite_count' && isBad ? classes['badText'] : ''
          }`}
          style={{ width: column.width }}
          title={
            column.id === 'node'
              ? row?.address
              : column.id === 'non_finite_count' && isBad
                ? t('bad', bad)
                : undefined
          }
        >
          {row === undefined ? (
            <div
              className={classes['loading']}
              style={{ width: `${40 + ((index * 7 + column.width) % 50)}%` }}
            />
          ) : column.id === 'node' ? (
            <bdi>{column.text(row)}</bdi>
          ) : (
            column.text(row)
          )}
        </div>
      ))}
    </div>
  )
}
