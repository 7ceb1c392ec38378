import { Skeleton } from '@mantine/core'
import { lazy, Suspense } from 'react'
import { useTranslation } from 'react-i18next'
import { Group, Panel, Separator } from 'react-resizable-panels'
import { useSession } from '~/api/queries'
import type { Session, Statistics, TensorRecord } from '~/api/types'
import { Advice } from '~/parts/Advice'
import { Failure, Notice } from '~/parts/Notice'
import { absence, Absent } from './Absent'
import { Dimensions } from './Dimensions'
import { gridOf, WRAPPED } from './grid'
import { Heading } from './Heading'
import { Finder } from './Finder'
import { HeatMap } from './HeatMap'
import { Histogram } from './Histogram'
import { useProducer, useTensor, useTensorStatistics, type ValueRequest } from './queries'
import { SliceMap } from './SliceMap'
import { parseEntries, sliceText, zoomed } from './slices'
import { firstEntries, nonFinite, reached, shownEntries, useFirstElement } from './start'
import { StatisticsPane, type Side } from './StatisticsPane'
import { Table } from './Table'
import styles from './tensor.module.css'
import { tensorTexts } from './texts'
import { Toolbar } from './Toolbar'
import { useTensorView, useTensorViews, type TensorView } from './views'

const Relations = lazy(() => import('../relations'))

/** The details of a tensor at the step shown: values in three presentations, statistics, hits, and relations. */
export default function Tensor({ address }: { address: string }) {
  const { t } = useTranslation(tensorTexts)
  const { data: record, error, refetch } = useTensor(address)
  const { data: session } = useSession()
  return (
    <div className="fill" data-testid="panel-tensor">
      {error && !record ? (
        <Failure error={error} retry={() => void refetch()} />
      ) : record === undefined ? (
        <>
          <Skeleton h={56} />
          <Skeleton flex={1} mt={4} />
        </>
      ) : record === null ? (
        <Notice title={t('absent.unknown')} testId="tensor-absent">
          {t('absent.unknownText', { address })}
        </Notice>
      ) : (
        <Shown address={address} record={record} session={session} />
      )}
    </div>
  )
}

function Shown(props: { address: string; record: TensorRecord; session: Session | undefined }) {
  const { address, record, session } = props
  const { t } = useTranslation(tensorTexts)
  const view = useTensorView(address)
  const change = useTensorViews((state) => state.change)
  const producer = useProducer(record)
  const reason = absence(record, view.which, session)
  const declared = record.shape?.every((length) => length >= 0) === true ? record.shape : null
  const request: ValueRequest = { address: record.address, which: view.which, tolerance: view.tolerance }
  const firstOfDeclared = useFirstElement(request, view, reason === null ? declared : null, record.statistics)
  const declaredSlice = sliceText(shownEntries(view, declared ?? [], firstOfDeclared))
  const { sides, statistics, isLoading, error } = useSides(
    record,
    view,
    request,
    reason !== null ? null : declared ? declaredSlice : '',
  )
  // A dimension that is known only at run time arrives with the value.
  const shape = declared ?? statistics?.shape ?? null
  const firstOfValue = useFirstElement(request, view, reason === null ? shape : null, statistics)
  const first = declared ? firstOfDeclared : firstOfValue
  const entries = shownEntries(view, shape ?? [], first)
  const parsed = parseEntries(entries, shape ?? [])
  const grid = 'key' in parsed ? null : gridOf(parsed)
  const cell = view.cell ?? (grid && first ? grid.cellOf(first) : null)
  const goTo = (index: readonly number[]) => {
    const next = reached(view, index, entries, shape ?? [])
    const parsed = parseEntries(next, shape ?? [])
    change(address, { entries: next, cell: 'key' in parsed ? null : gridOf(parsed).cellOf(index) })
  }
  const hasSlices =
    grid !== null &&
    !('key' in parsed) &&
    parsed.some((entry, dimension) => entry.kind === 'index' && (shape?.[dimension] ?? 0) > 1)
  return (
    <>
      <Heading record={record} which={view.which} />
      <Toolbar address={address} record={record} session={session} />
      <Group orientation="horizontal" style={{ flex: 1, minHeight: 0 }}>
        <Panel defaultSize="252px" minSize="160px" maxSize="60%" collapsible>
          <div className={`scroll ${styles.side ?? ''}`}>
            <StatisticsPane
              sides={sides}
              isLoading={isLoading}
              error={error}
              extent={view.extent}
              onExtent={(extent) => change(address, { extent })}
              canSlice={reason === null && declared !== null && declared.length > 0}
            />
            {reason === null && shape && hasSlices && grid.length > 0 && (
              <SliceMap request={request} shape={shape} entries={parsed} texts={entries} onGo={goTo} />
            )}
            <section className={styles.advice} aria-label={t('hits')} data-testid="tensor-hits">
              <h3>{t('hits')}</h3>
              {record.abbreviations.length === 0 && <p className={styles.note}>{t('noHits')}</p>}
              <div className={styles.advised}>
                <Advice address={record.address} />
                {producer !== null && <Advice address={producer} />}
              </div>
            </section>
          </div>
        </Panel>
        <Separator className="separator upright" />
        <Panel minSize="260px">
          <Group orientation="vertical">
            <Panel minSize="120px">
              <div className="fill">
                {reason === null && shape && (
                  <Dimensions
                    shape={shape}
                    entries={entries}
                    first={firstEntries(view, shape, first)}
                    onApply={(next) => change(address, { entries: next, cell: next && [0, 0] })}
                  >
                    <Finder
                      request={request}
                      at={cell && grid ? grid.indexOf(...cell) : null}
                      nonFiniteCount={view.which === 'current' ? nonFinite(record.statistics) : null}
                      onFound={goTo}
                    />
                  </Dimensions>
                )}
                <div className={styles.value}>
                  {reason !== null ? (
                    <Absent record={record} reason={reason} />
                  ) : shape === null || first === undefined ? (
                    error && shape === null ? (
                      <Failure error={error} />
                    ) : (
                      <Skeleton h="100%" />
                    )
                  ) : (
                    <Value
                      address={address}
                      view={view}
                      request={request}
                      dtype={record.dtype || (statistics?.dtype ?? '')}
                      shape={shape}
                      entries={entries}
                      cell={cell}
                      statistics={statistics}
                    />
                  )}
                </div>
              </div>
            </Panel>
            <Separator className="separator level" />
            <Panel defaultSize="34%" minSize="80px" collapsible>
              <div className="fill">
                <h3 className={styles.subtitle}>{t('relations')}</h3>
                <div className={styles.relations}>
                  <Suspense fallback={<Skeleton h="100%" />}>
                    <Relations address={address} />
                  </Suspense>
                </div>
              </div>
            </Panel>
          </Group>
        </Panel>
      </Group>
    </>
  )
}

/** The statistics of a value; for a difference, also those of both sides. */
function useSides(record: TensorRecord, view: TensorView, request: ValueRequest, slice: string | null) {
  const { t } = useTranslation(tensorTexts)
  const reported = record.statistics
  const isWhole = view.extent === 'tensor' || slice === null || slice === ''
  const isReported =
    view.which === 'current' && isWhole && reported !== null && reported !== undefined && !reported.partial
  const { data, error, isLoading } = useTensorStatistics(
    request,
    isWhole ? '' : slice,
    slice !== null && !isReported,
  )
  const computed = data?.statistics ?? null
  const statistics: Statistics | null =
    computed ?? (view.which === 'current' && isWhole ? (reported ?? null) : null)
  const sides: Side[] =
    view.which === 'difference'
      ? [
          { title: t('previous'), statistics: data?.previous ?? null },
          { title: t('current'), statistics: data?.current ?? null },
          { title: t('differenceShort'), statistics: computed },
        ]
      : [{ title: t(view.which), statistics }]
  return { sides, statistics, isLoading, error }
}

function Value(props: {
  address: string
  view: TensorView
  request: ValueRequest
  dtype: string
  shape: readonly number[]
  entries: readonly string[]
  cell: [number, number] | null
  statistics: Statistics | null
}) {
  const { address, view, request, dtype, shape, entries, cell, statistics } = props
  const change = useTensorViews((state) => state.change)
  const parsed = parseEntries(entries, shape)
  if ('key' in parsed) return null
  const grid = gridOf(parsed)
  const slice = sliceText(entries)
  const largest =
    statistics && statistics.max !== null && statistics.min !== null
      ? Math.max(Math.abs(statistics.max ?? 0), Math.abs(statistics.min ?? 0))
      : null
  if (view.presentation === 'histogram') {
    return (
      <Histogram
        request={request}
        slice={view.extent === 'slice' ? slice : ''}
        statistics={statistics}
        dtype={dtype}
      />
    )
  }
  if (view.presentation === 'table') {
    return (
      <Table
        key={`${slice} ${view.which}`}
        request={request}
        slice={slice}
        grid={grid}
        dtype={dtype}
        largest={largest}
        cell={cell ?? [0, 0]}
        onCell={(cell) => change(address, { cell })}
      />
    )
  }
  return (
    <HeatMap
      request={request}
      slice={slice}
      grid={grid}
      dtype={dtype}
      largest={largest}
      marked={
        cell &&
        (grid.isWrapped ? { row: 0, column: cell[0] * WRAPPED + cell[1] } : { row: cell[0], column: cell[1] })
      }
      onOpen={(row, column) =>
        change(address, {
          presentation: 'table',
          cell: grid.isWrapped ? [Math.floor(column / WRAPPED), column % WRAPPED] : [row, column],
        })
      }
      onZoom={(from, to) =>
        change(address, { entries: zoomed(parsed, grid.isWrapped, from, to), cell: [0, 0] })
      }
    />
  )
}
