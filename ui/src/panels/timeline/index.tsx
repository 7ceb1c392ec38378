import { Anchor, Skeleton, useComputedColorScheme } from '@mantine/core'
import { useElementSize } from '@mantine/hooks'
import { useEffect, useRef, useState, type KeyboardEvent } from 'react'
import { useTranslation } from 'react-i18next'
import { useSession } from '~/api/queries'
import type { Timeline as TimelineData } from '~/api/types'
import { sized } from '~/panels/overview/canvas'
import { useTimeline } from '~/panels/overview/queries'
import { INFINITE, NAN } from '~/panels/overview/scale'
import { useGoToStep } from '~/panels/overview/useGoTo'
import { Failure } from '~/parts/Notice'
import { short } from '~/parts/numbers'
import { parseAddress } from '~/parts/tensorAddress'
import { useView } from '~/state/store'
import { drawTimeline, KEPT, columnAt, type LaneWords } from './drawing'
import { timelineTexts } from './texts'
import classes from './timeline.module.css'

/** The timeline of steps: loss, hits, kept data, and the run's current step. */
export function Timeline() {
  const { ref, width, height } = useElementSize()
  // In multiples of 100, so that dragging a separator does not refetch for every pixel.
  const columns = Math.min(1000, Math.max(100, 100 * Math.floor(width / 200)))
  const { data, error, refetch } = useTimeline(columns)
  const [cursor, setCursor] = useState(-1)
  return (
    <div className={classes['panel']} data-testid="panel-timeline">
      {error ? (
        <Failure error={error} retry={() => void refetch()} />
      ) : (
        <>
          <Head data={data} cursor={cursor} />
          <div ref={ref} className={classes['body']}>
            {data && width > 0 ? (
              <Line data={data} width={width} height={height} cursor={cursor} setCursor={setCursor} />
            ) : (
              <Skeleton height="100%" radius={0} />
            )}
          </div>
        </>
      )}
    </div>
  )
}

function Line(props: {
  data: TimelineData
  width: number
  height: number
  cursor: number
  setCursor: (column: number) => void
}) {
  const { data, width, height, cursor, setCursor } = props
  const { t } = useTranslation(timelineTexts)
  const theme = useComputedColorScheme('light', { getInitialValueInEffect: false })
  const { data: session } = useSession()
  const goToStep = useGoToStep()
  const canvas = useRef<HTMLCanvasElement>(null)
  const shown = columnOf(data, session?.step ?? -1)
  const present = columnOf(data, data.present_step)
  const canGo = session?.capabilities.can_go_to_step === true
  useEffect(() => {
    const context = sized(canvas.current, width, height)
    const words: LaneWords = {
      loss: t('loss'),
      hits: t('hits'),
      values: t('values'),
      graphs: t('graphs'),
    }
    if (context) drawTimeline(context, data, { width, height }, { shown, present, cursor }, theme, words)
  }, [data, width, height, shown, present, cursor, theme, t])
  const goTo = (column: number) => {
    // A column of several steps goes to the last one, which shows the outcome.
    const step = data.steps[column]?.last
    if (step !== undefined) goToStep(step)
  }
  const onKey = (event: KeyboardEvent) => {
    const from = cursor >= 0 ? cursor : Math.max(0, shown)
    const end = data.steps.length - 1
    const moves: Record<string, number> = {
      ArrowLeft: from - 1,
      ArrowRight: from + 1,
      PageUp: from - 10,
      PageDown: from + 10,
      Home: 0,
      End: end,
    }
    const to = moves[event.key]
    if (to !== undefined) setCursor(Math.min(end, Math.max(0, to)))
    else if (event.key === 'Enter') goTo(from)
    else return
    event.preventDefault()
  }
  const at = (event: { clientX: number; currentTarget: Element }) =>
    columnAt(event.clientX - event.currentTarget.getBoundingClientRect().left, width, data.steps.length)
  const column = cursor >= 0 ? cursor : shown
  const span = data.steps[column]
  const words = useWords()(data, column)
  return (
    <>
      <canvas ref={canvas} aria-hidden />
      <div
        className={classes['pointer']}
        role="slider"
        tabIndex={0}
        aria-label={t('label')}
        aria-description={t('help')}
        aria-valuemin={data.first_step}
        aria-valuemax={data.last_step}
        aria-valuenow={span?.last ?? data.present_step}
        aria-valuetext={words.join(', ')}
        style={{ cursor: canGo ? 'pointer' : 'default' }}
        data-testid="timeline-line"
        onPointerMove={(event) => setCursor(at(event))}
        onPointerLeave={() => setCursor(-1)}
        onBlur={() => setCursor(-1)}
        onClick={(event) => goTo(at(event))}
        onKeyDown={onKey}
      />
    </>
  )
}

/** Describes the step under the pointer, or explains the colours. */
function Head({ data, cursor }: { data: TimelineData | undefined; cursor: number }) {
  const { t } = useTranslation(timelineTexts)
  const theme = useComputedColorScheme('light', { getInitialValueInEffect: false })
  const words = useWords()
  const selectNode = useView((view) => view.selectNode)
  const loss = data?.loss ? parseAddress(data.loss.address) : null
  return (
    <div className={classes['head']}>
      <b>{t('title')}</b>
      {data && cursor >= 0 ? (
        <span className={classes['words']} data-testid="timeline-words">
          {words(data, cursor).join(' · ')}
        </span>
      ) : (
        <>
          {loss ? (
            <Anchor
              component="button"
              type="button"
              className={classes['lossName']}
              title={t('openLoss')}
              onClick={() => selectNode({ rank: loss.rank, graph: loss.graph, name: loss.node })}
            >
              {t('loss')}: {loss.node.split('/').at(-1)}
            </Anchor>
          ) : (
            data && !data.loss && <span className={classes['words']}>{t('noLoss')}</span>
          )}
          <span className={classes['keys']}>
            <Key colour={KEPT[theme].values} label={t('values')} height={10} />
            <Key colour={KEPT[theme].statistics} label={t('statistics')} height={5} />
          </span>
        </>
      )}
    </div>
  )
}

function Key({ colour, label, height }: { colour: string; label: string; height: number }) {
  return (
    <span>
      <span style={{ width: 14, height, background: colour, borderRadius: 1 }} />
      {label}
    </span>
  )
}

function useWords() {
  const { t } = useTranslation(timelineTexts)
  const { data: session } = useSession()
  return (data: TimelineData, column: number): string[] => {
    const span = data.steps[column]
    if (!span) return [t('empty')]
    const value = data.loss?.values[column] ?? null
    const mark = data.loss?.marks[column] ?? 0
    const isIn = (step: number | undefined) => step !== undefined && span.first <= step && step <= span.last
    const lossWords = [
      ...(value === null ? [] : [short(value)]),
      ...(mark & NAN ? [t('nan')] : []),
      ...(mark & INFINITE ? [t('infinite')] : []),
    ]
    return [
      span.first === span.last
        ? t('step', { step: span.first })
        : t('stepRange', { first: span.first, last: span.last }),
      ...(isIn(session?.step) ? [t('shown')] : []),
      ...(isIn(data.present_step) && session?.step !== data.present_step ? [t('present')] : []),
      ...(lossWords.length ? [t('lossIs', { value: lossWords.join(', ') })] : []),
      span.hits ? t('hitCount', { count: span.hits }) : t(span.unchecked ? 'unchecked' : 'noHits'),
      span.values ? t('hasValues') : span.statistics ? t('hasStatistics') : t('hasNothing'),
      ...(span.graph ? [t('graph', { name: span.graph })] : []),
    ]
  }
}

function columnOf(data: TimelineData, step: number): number {
  return data.steps.findIndex((span) => span.first <= step && step <= span.last)
}
