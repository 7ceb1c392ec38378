import { Button, Loader, Select, Skeleton, Text, TextInput, useComputedColorScheme } from '@mantine/core'
import { useDebouncedValue, useElementSize } from '@mantine/hooks'
import { IconFlag3, IconGridDots, IconSearch, IconZoomReset } from '~/parts/icons'
import { useCallback, useMemo, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { useOrigins, useSession } from '~/api/queries'
import { MEASURES } from '~/api/statistics'
import type { Overview as OverviewData, OverviewStatistic } from '~/api/types'
import type { Cell } from '~/parts/gridKeys'
import { ActionButton } from '~/parts/ActionButton'
import { Failure, Notice } from '~/parts/Notice'
import { bytes, count } from '~/parts/numbers'
import type { Action } from '~/state/actions'
import { parseAddress } from '~/parts/tensorAddress'
import { useView } from '~/state/store'
import { useActions } from '~/state/useActions'
import { beginningOf, type Beginning } from './beginning'
import { cellsThatFit, partBetween, type Part } from './geometry'
import { HeatMap } from './HeatMap'
import { Legend } from './Legend'
import classes from './overview.module.css'
import { useOverview } from './queries'
import { scaleOf } from './scale'
import { overviewTexts } from './texts'
import { useGoToStep } from './useGoTo'

const STATISTICS: OverviewStatistic[] = [
  ...MEASURES,
  'abs_max',
  'zero_percent',
  'negative_percent',
  'non_finite_percent',
]

/** A dump up to this size in bytes is read without asking the user. */
const READ_UNASKED = 512 * 2 ** 20

/** A picture is kept while at least this fraction of its rows and columns fits. */
const LEAST_OF_KEPT = 0.6

/** Maximum number of origins located in the picture. */
const MOST_LOCATED = 64

/** All tensors over all steps in one picture: shows where and when it went wrong. */
export default function Overview() {
  const { t } = useTranslation(overviewTexts)
  const theme = useComputedColorScheme('light', { getInitialValueInEffect: false })
  const [statistic, setStatistic] = useState<OverviewStatistic>('abs_mean')
  const [filter, setFilter] = useState('')
  const [query] = useDebouncedValue(filter.trim(), 250)
  const [parts, setParts] = useState<Part[]>([])
  const [cursor, setCursor] = useState<Cell | null>(null)
  const [reads, setReads] = useState<'unasked' | 'asked' | 'never'>('unasked')
  const { ref, width, height } = useElementSize()
  const size = useCells(width, height)
  const part = parts.at(-1) ?? null
  const { data: origins, isLoading: isSearching } = useOrigins()
  const locate = useMemo(
    () => (origins ?? []).slice(0, MOST_LOCATED).map(({ address }) => address),
    [origins],
  )
  const overview = useOverview(
    { statistic, query, part, locate, ...size },
    width > 0 && height > 0,
    (unread) => reads === 'asked' || (reads === 'unasked' && unread <= READ_UNASKED),
  )
  const { data, error } = overview
  const scale = useMemo(() => data && scaleOf(data), [data])
  const beginning = useMemo(
    () => (data && !isSearching ? beginningOf(data, origins ?? []) : null),
    [data, origins, isSearching],
  )
  const goToStep = useGoToStep()
  const go = useGo(data)
  const begin = useCallback(() => {
    const tensor = parseAddress(beginning?.address ?? '')
    if (!beginning || !tensor) return
    setCursor(beginning.cell)
    // Also if its row shows several tensors, or the part that is shown does not have it.
    goToStep(beginning.step)
    useView.getState().selectNode({ rank: tensor.rank, graph: tensor.graph, name: tensor.node })
  }, [beginning, goToStep])
  const actions = useOverviewActions(beginning, begin, parts.length > 0, setParts)
  useActions(actions)
  const show = (closer: Part | null) => {
    setCursor(null)
    if (closer) setParts([...parts, closer])
  }
  const isReading = reads !== 'never' && (reads === 'asked' || (data?.unread_bytes ?? 0) <= READ_UNASKED)
  return (
    <div className="fill" data-testid="panel-overview">
      <div className={`heading ${classes['bar']}`}>
        <Select
          aria-label={t('statistic')}
          w={200}
          allowDeselect={false}
          value={statistic}
          data={STATISTICS.map((value) => ({ value, label: t(`statistics.${value}`) }))}
          onChange={(value) => setStatistic(value ?? 'abs_mean')}
        />
        <TextInput
          aria-label={t('filter')}
          placeholder={t('filterHint')}
          leftSection={<IconSearch size={13} />}
          w={170}
          value={filter}
          onChange={(event) => {
            setFilter(event.currentTarget.value)
            setParts([])
          }}
        />
        <ActionButton id="overview.begin" icon={<IconFlag3 size={16} />} />
        <ActionButton id="overview.all" icon={<IconZoomReset size={16} />} />
        {data && data.steps.length > 0 && <Where data={data} isPart={part !== null} />}
      </div>
      {data && data.unread > 0 && (
        <Unread
          data={data}
          isReading={isReading}
          read={() => {
            setReads('asked')
            void overview.refetch()
          }}
          stop={() => setReads('never')}
        />
      )}
      <div ref={ref} className={classes['body']} aria-busy={overview.isPlaceholderData}>
        {error ? (
          <Failure error={error} retry={() => void overview.refetch()} />
        ) : !data || !scale || !width ? (
          <Skeleton height="100%" radius={0} />
        ) : data.rows.length && data.steps.length ? (
          <HeatMap
            data={data}
            scale={scale}
            width={width}
            height={height}
            beginning={beginning}
            cursor={cursor}
            onCursor={setCursor}
            onGo={(cell, isOpened) => {
              const closer = go(cell, isOpened)
              if (closer) show(closer)
            }}
            onPart={show}
            onBack={() => setParts(parts.slice(0, -1))}
            onBeginning={begin}
          />
        ) : (
          <Empty isFiltered={query !== ''} clear={() => setFilter('')} />
        )}
      </div>
      {data && scale && data.rows.length > 0 && (
        <Legend scale={scale} theme={theme} isMerged={data.rows.some((row) => row.tensors > 1)} />
      )}
    </div>
  )
}

/** Return a function that goes to the tensor of a cell; for a row of several tensors, it returns their part. */
function useGo(data: OverviewData | undefined): (cell: Cell, isOpened: boolean) => Part | null {
  const goToStep = useGoToStep()
  return useCallback(
    ({ row, column }, isOpened) => {
      const { rank, selectNode, openTensor } = useView.getState()
      const tensor = data?.rows[row]
      const span = data?.steps[column]
      if (!data || !tensor || !span) return null
      if (tensor.tensors > 1)
        return partBetween(data, { row, column: 0 }, { row, column: data.steps.length - 1 })
      goToStep(span.first)
      selectNode({ rank, graph: tensor.graph, name: tensor.node })
      if (isOpened) openTensor(tensor.address)
      return null
    },
    [data, goToStep],
  )
}

function useOverviewActions(
  beginning: Beginning | null,
  begin: () => void,
  isPart: boolean,
  setParts: (parts: Part[]) => void,
): Action[] {
  const { t } = useTranslation(overviewTexts)
  return useMemo(
    () => [
      {
        id: 'overview.begin',
        label: t('goToBeginning'),
        group: t('group'),
        disabled: beginning ? undefined : t('noBeginning'),
        run: begin,
      },
      {
        id: 'overview.all',
        label: t('showAll'),
        group: t('group'),
        disabled: isPart ? undefined : t('showAllReason'),
        run: () => setParts([]),
      },
    ],
    [beginning, begin, isPart, setParts, t],
  )
}

function Where({ data, isPart }: { data: OverviewData; isPart: boolean }) {
  const { t } = useTranslation(overviewTexts)
  const steps = { from: data.steps[0]?.first ?? 0, to: data.steps.at(-1)?.last ?? 0 }
  return (
    <span className={classes['where']}>
      {isPart
        ? t('part', {
            first: count(data.offset + 1),
            last: count(data.offset + data.tensors),
            total: count(data.total),
            ...steps,
          })
        : t('whole', { count: data.total, ...steps })}
    </span>
  )
}

function Unread(props: { data: OverviewData; isReading: boolean; read: () => void; stop: () => void }) {
  const { t } = useTranslation(overviewTexts)
  const { unread, unread_bytes } = props.data
  return (
    <div className={classes['unread']} role="status">
      {props.isReading && <Loader size={14} />}
      {props.isReading ? t('reading') : ''} {t('unread', { count: unread, size: bytes(unread_bytes) })}
      {props.isReading ? (
        <Button variant="default" size="compact-xs" onClick={props.stop}>
          {t('stop')}
        </Button>
      ) : (
        <Button size="compact-xs" onClick={props.read}>
          {t('read')}
        </Button>
      )}
    </div>
  )
}

/** The number of cells that fit. While the page is being laid out, a picture with somewhat more cells is kept. */
function useCells(width: number, height: number) {
  const fit = cellsThatFit(width, height)
  const [cells, setCells] = useState(fit)
  const isFar = (['rows', 'columns'] as const).some(
    (side) => fit[side] > cells[side] || fit[side] < LEAST_OF_KEPT * cells[side],
  )
  if (isFar) setCells(fit)
  return isFar ? fit : cells
}

function Empty({ isFiltered, clear }: { isFiltered: boolean; clear: () => void }) {
  const { t } = useTranslation(overviewTexts)
  const { data: session } = useSession()
  if (isFiltered)
    return (
      <Notice title={t('noMatch')}>
        {t('noMatchMore')}
        <Button variant="default" onClick={clear}>
          {t('clear')}
        </Button>
      </Notice>
    )
  return (
    <Notice icon={<IconGridDots size={32} />} title={t('emptyTitle')}>
      <Text c="var(--quiet)" ta="center" maw={560}>
        {session?.capabilities.live ? t('emptyLive') : t('emptyDump')}
      </Text>
      <Button variant="default" onClick={() => useView.getState().set({ tab: 'curves' })}>
        {t('showCurves')}
      </Button>
    </Notice>
  )
}
