import { SegmentedControl, Select, Skeleton } from '@mantine/core'
import { IconArrowsDiff } from '~/parts/icons'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'
import { Dimensions } from '~/panels/tensor/Dimensions'
import { gridOf, WRAPPED, type Grid } from '~/panels/tensor/grid'
import { HeatMap } from '~/panels/tensor/HeatMap'
import type { ValueRequest } from '~/panels/tensor/queries'
import { parseEntries, sliceText, zoomed } from '~/panels/tensor/slices'
import { firstEntries, shownEntries, useFirstElement } from '~/panels/tensor/start'
import { Table } from '~/panels/tensor/Table'
import { useTensorView, useTensorViews } from '~/panels/tensor/views'
import type { Cell } from '~/parts/gridKeys'
import { Failure, Notice } from '~/parts/Notice'
import { shapeText } from '~/parts/numbers'
import { useView } from '~/state/store'
import { BothStatistics } from './BothStatistics'
import classes from './compare.module.css'
import { distanceOf, distanceText } from './measures'
import { Measures } from './Measures'
import { useBothStatistics, usePair, valuesOf, type Shown } from './queries'
import type { ComparedOperator, ComparedSlot, ComparedStatistics } from '~/api/types'
import { compareTexts } from './texts'

const SIDES = ['a', 'b', 'difference'] as const

/** Both values of a tensor of the selected operator, side by side with their difference. */
export default function Values({ shown }: { shown: Shown }) {
  const { t } = useTranslation(compareTexts)
  const node = useView((view) => view.node)
  const { result, step, comparison } = shown
  const name = node?.name ?? result.first?.name ?? null
  const pair = usePair(name)
  if (name === null) {
    return (
      <Notice icon={<IconArrowsDiff size={32} />} title={t('noPair')}>
        {t('noPairText')}
      </Notice>
    )
  }
  if (pair === undefined) return <Skeleton flex={1} radius={0} />
  if (pair === null) {
    return (
      <Notice
        icon={<IconArrowsDiff size={32} />}
        title={t('notCompared', { name: name.split('/').at(-1), step })}
        testId="compare-not-compared"
      >
        {t('notComparedText')}
      </Notice>
    )
  }
  return <Pair key={`${pair.step} ${pair.name}`} id={comparison.id} pair={pair} />
}

interface Numbered {
  key: string
  io: 'output' | 'input'
  slot: ComparedSlot
}

function slotsOf(pair: ComparedOperator): Numbered[] {
  return (['output', 'input'] as const).flatMap((io) =>
    pair[`${io}s`].map((slot, index) => ({ key: `${io} ${index}`, io, slot })),
  )
}

function Pair({ id, pair }: { id: string; pair: ComparedOperator }) {
  const { t } = useTranslation(compareTexts)
  const [chosen, choose] = useState('')
  const slots = slotsOf(pair)
  const shown = slots.find(({ key }) => key === chosen) ?? slots[0]
  if (!shown) return <Notice title={t('pairOf', { name: pair.name })}>{t('noSlots')}</Notice>
  const { slot } = shown
  const nameOf = ({ io, slot, key }: Numbered) => {
    const isState = io === 'output' && slot.name !== pair.name
    const name = t(isState ? 'stateAfter' : io, {
      slot: io === 'output' ? slot.slot : key.split(' ')[1],
      name: slot.name.split('/').at(-1),
    })
    return `${name}  ${distanceText(distanceOf(slot), t)}`
  }
  return (
    <div className="fill" data-testid="compare-values" data-node={pair.name}>
      <div className={`heading ${classes['bar'] ?? ''}`}>
        <Select
          aria-label={t('tensor')}
          data-testid="compare-slot"
          w={190}
          allowDeselect={false}
          value={shown.key}
          data={slots.map((entry) => ({ value: entry.key, label: nameOf(entry) }))}
          onChange={(value) => choose(value ?? '')}
        />
        <Choices id={id} slot={slot} />
      </div>
      <Measures difference={slot} />
      <Slot key={shown.key} id={id} slot={slot} />
    </div>
  )
}

/** Return the key under which the view of two values is remembered. */
function viewKey(id: string, { address, address_b }: ComparedSlot): string {
  return `${id} ${address ?? ''} ${address_b ?? ''}`
}

/** The choice of colour scale, and of heat map or table, for both sides and the difference. */
function Choices({ id, slot }: { id: string; slot: ComparedSlot }) {
  const { t } = useTranslation(compareTexts)
  const key = viewKey(id, slot)
  const { presentation } = useTensorView(key)
  const { change, colours, setColours } = useTensorViews()
  return (
    <span className={classes['choicesAtEnd']}>
      <SegmentedControl
        aria-label={t('scale')}
        value={colours}
        data={(['linear', 'logarithmic'] as const).map((value) => ({ value, label: t(value) }))}
        onChange={(value) => setColours(value === 'linear' ? 'linear' : 'logarithmic')}
      />
      <SegmentedControl
        aria-label={t('showAs')}
        value={presentation === 'table' ? 'table' : 'heat-map'}
        data={[
          { value: 'heat-map', label: t('heatMap') },
          { value: 'table', label: t('numbers') },
        ]}
        onChange={(value) => change(key, { presentation: value === 'table' ? 'table' : 'heat-map' })}
      />
    </span>
  )
}

function Slot({ id, slot }: { id: string; slot: ComparedSlot }) {
  const { t } = useTranslation(compareTexts)
  const { address, address_b } = slot
  if (!address || !address_b) {
    return <Notice title={t('onlyStatistics')}>{t('onlyStatisticsHow')}</Notice>
  }
  return <Both id={id} slot={slot} a={address} b={address_b} />
}

function Both({ id, slot, a, b }: { id: string; slot: ComparedSlot; a: string; b: string }) {
  const { t } = useTranslation(compareTexts)
  const { data, error, refetch } = useBothStatistics(id, a, b, '')
  const shapes = { a: shapeText(slot.shapes[0]), b: shapeText(slot.shapes[1]) }
  return (
    <>
      <div className={classes['both']}>
        {!slot.is_comparable ? (
          <Notice title={t('otherShapes', shapes)} testId="compare-other-shapes" />
        ) : data && !data.difference ? (
          <Notice title={t('onlyStatistics')} testId="compare-only-statistics">
            {t('onlyStatisticsHow')}
          </Notice>
        ) : error && !data ? (
          <Failure error={error} retry={() => void refetch()} />
        ) : !data ? (
          <Skeleton h="100%" radius={0} />
        ) : (
          <Pictures id={id} slot={slot} a={a} b={b} statistics={data} />
        )}
      </div>
      <BothStatistics statistics={data} />
    </>
  )
}

function largestOf(sides: readonly ComparedStatistics['a'][]): number | null {
  const ends = sides.flatMap(({ min, max }) => [min, max]).filter((end) => end !== null && end !== undefined)
  return ends.length > 0 ? Math.max(...ends.map(Math.abs)) : null
}

function Pictures(props: {
  id: string
  slot: ComparedSlot
  a: string
  b: string
  statistics: ComparedStatistics
}) {
  const { id, slot, a, b, statistics } = props
  const { t } = useTranslation(compareTexts)
  const key = viewKey(id, slot)
  const view = useTensorView(key)
  const change = useTensorViews((state) => state.change)
  const [pointed, point] = useState<Cell | null>(null)
  const shape = slot.shapes[0]
  const request = (which: (typeof SIDES)[number]): ValueRequest => ({
    address: a,
    which: 'current',
    tolerance: 0,
    from: valuesOf(id, a, b, which),
  })
  const first = useFirstElement(request('difference'), view, shape, statistics.difference)
  if (first === undefined) return <Skeleton h="100%" radius={0} />
  const entries = shownEntries(view, shape, first)
  const parsed = parseEntries(entries, shape)
  if ('key' in parsed) return null
  const grid = gridOf(parsed)
  const cell = view.cell ?? (first ? grid.cellOf(first) : null) ?? [0, 0]
  const isTable = view.presentation === 'table'
  const values = largestOf([statistics.a, statistics.b])
  return (
    <div className="fill">
      <Dimensions
        shape={shape}
        entries={entries}
        first={firstEntries(view, shape, first)}
        onApply={(next) => change(key, { entries: next, cell: next && [0, 0] })}
      >
        {statistics.layout && (
          <span className={classes['quiet']}>{t('layout', { layout: statistics.layout })}</span>
        )}
      </Dimensions>
      <div className={classes['sides']}>
        {SIDES.map((which) => {
          const common = {
            request: request(which),
            slice: sliceText(entries),
            grid,
            dtype: which === 'b' ? slot.dtypes[1] : slot.dtypes[0],
            largest:
              which === 'difference'
                ? largestOf(statistics.difference ? [statistics.difference] : [])
                : values,
          }
          return (
            <section key={which} aria-label={t(which)} data-testid={`compare-side-${which}`}>
              <h3>
                {t(which)}
                {which !== 'difference' && (
                  <small>
                    {common.dtype} {shapeText(slot.shapes[which === 'a' ? 0 : 1])}
                  </small>
                )}
              </h3>
              {isTable ? (
                <Table
                  key={common.slice}
                  {...common}
                  cell={cell}
                  onCell={(to) => change(key, { cell: to })}
                />
              ) : (
                <HeatMap
                  {...common}
                  isSmall
                  pointed={{ cell: pointed, point }}
                  marked={markedIn(grid, cell)}
                  onOpen={(row, column) =>
                    change(key, {
                      presentation: 'table',
                      cell: grid.isWrapped ? [Math.floor(column / WRAPPED), column % WRAPPED] : [row, column],
                    })
                  }
                  onZoom={(from, to) =>
                    change(key, { entries: zoomed(parsed, grid.isWrapped, from, to), cell: [0, 0] })
                  }
                />
              )}
            </section>
          )
        })}
      </div>
    </div>
  )
}

/** Return the position of a table cell in the heat map, which shows a single dimension as one row. */
function markedIn(grid: Grid, [row, column]: readonly [number, number]): Cell {
  return grid.isWrapped ? { row: 0, column: row * WRAPPED + column } : { row, column }
}
