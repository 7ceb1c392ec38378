/** The parts of the charting library that curves need. */
import { LineChart, ScatterChart, type LineSeriesOption, type ScatterSeriesOption } from 'echarts/charts'
import {
  AxisPointerComponent,
  DataZoomInsideComponent,
  GridComponent,
  MarkLineComponent,
  TooltipComponent,
  type DataZoomComponentOption,
  type GridComponentOption,
  type TooltipComponentOption,
} from 'echarts/components'
import { init, use as register, type ComposeOption } from 'echarts/core'
import { CanvasRenderer } from 'echarts/renderers'
import { INKS } from '~/panels/overview/inks'
import type { Theme } from '~/panels/overview/scale'
import { gapsOf } from '~/parts/gaps'
import { digitsBetween, short } from '~/parts/numbers'
import { COLOURS } from './colours'
import type { Series } from './series'

register([
  LineChart,
  ScatterChart,
  GridComponent,
  TooltipComponent,
  AxisPointerComponent,
  DataZoomInsideComponent,
  MarkLineComponent,
  CanvasRenderer,
])

export { init }

export type Option = ComposeOption<
  | LineSeriesOption
  | ScatterSeriesOption
  | GridComponentOption
  | TooltipComponentOption
  | DataZoomComponentOption
>

const LEFT = 70
const RIGHT = 16
const TOP = 22
const BOTTOM = 26
const GAP = 26
/** Curves with at most this many points show each point. */
const FEW = 60

export interface Shown {
  series: readonly Series[]
  /** Colour of each curve by its key. */
  colours: ReadonlyMap<string, string>
  height: number
  /** The step shown, marked by a line. */
  step: number | null
  lastStep: number
  isLogarithmic: boolean
  theme: Theme
  words: { kind: (kind: string) => string; step: (step: number) => string; nan: string; infinite: string }
}

/** Return the options of the chart: a grid for each kind of number, stacked, with a common step axis. */
export function optionOf(shown: Shown): Option {
  const { series, height, theme, words, lastStep } = shown
  const ink = INKS[theme]
  const kinds = [...new Set(series.map(({ kind }) => kind))]
  const room = height - TOP - BOTTOM - GAP * Math.max(0, kinds.length - 1)
  const each = Math.max(24, room / Math.max(1, kinds.length))
  const text = { color: ink.quiet, fontSize: 11 }
  return {
    animation: false,
    grid: kinds.map((_, index) => ({
      left: LEFT,
      right: RIGHT,
      top: TOP + index * (each + GAP),
      height: each,
    })),
    xAxis: kinds.map((_, index) => ({
      gridIndex: index,
      type: 'value' as const,
      min: 0,
      max: Math.max(1, lastStep),
      minInterval: 1,
      axisLabel: { ...text, show: index === kinds.length - 1, formatter: (step: number) => String(step) },
      axisLine: { lineStyle: { color: ink.line } },
      axisTick: { show: index === kinds.length - 1 },
      splitLine: { show: false },
    })),
    yAxis: kinds.map((kind, index) => ({
      gridIndex: index,
      type: shown.isLogarithmic ? ('log' as const) : ('value' as const),
      scale: true,
      name: words.kind(kind),
      nameTextStyle: { ...text, align: 'left' as const, padding: [0, 0, 0, -LEFT + 14] },
      nameGap: 8,
      splitNumber: each < 70 ? 2 : 4,
      axisLabel: { ...text, formatter: labelOf(series, kind), hideOverlap: true },
      splitLine: { lineStyle: { color: ink.faint } },
    })),
    axisPointer: { link: [{ xAxisIndex: 'all' }], lineStyle: { color: ink.quiet } },
    tooltip: {
      trigger: 'axis',
      // Drawn on the canvas: the page's content security policy forbids inline styles.
      renderMode: 'richText',
      confine: true,
      backgroundColor: ink.back,
      borderColor: ink.line,
      textStyle: { color: ink.text, fontSize: 12 },
      formatter: (parameters) => {
        const all = Array.isArray(parameters) ? parameters : [parameters]
        // The lines of gaps have no name.
        const points = all.filter(({ seriesName }) => seriesName)
        const at = Array.isArray(points[0]?.value) ? Number(points[0].value[0]) : 0
        const lines = points.map(({ seriesName, value }) => {
          const [, number, mark] = Array.isArray(value) ? value : []
          return `${seriesName ?? ''}  ${typeof mark === 'string' ? mark : short(number as number)}`
        })
        return [words.step(at), ...lines].join('\n')
      },
    },
    dataZoom: [{ type: 'inside', xAxisIndex: kinds.map((_, index) => index), filterMode: 'none' }],
    series: series.flatMap((curve) => drawn(curve, kinds.indexOf(curve.kind), shown)),
  }
}

/** Return how the numbers of a kind are written on its axis. */
function labelOf(series: readonly Series[], kind: string): (value: number) => string {
  let [low, high] = [Infinity, -Infinity]
  for (const curve of series) {
    for (const value of curve.kind === kind ? curve.values : []) {
      if (value !== null) [low, high] = [Math.min(low, value), Math.max(high, value)]
    }
  }
  const digits = digitsBetween(low, high)
  return (value) => short(value, digits)
}

/** Return the points of a curve; a point without a value ends its line where values are unknown. */
function pointsOf(
  { steps, values }: Series,
  isGap: (from: number, to: number) => boolean,
  isLogarithmic: boolean,
): [number, number | null][] {
  return steps.flatMap((step, index) => {
    const value = values[index] ?? null
    const point: [number, number | null] = [
      step,
      isLogarithmic && value !== null && value <= 0 ? null : value,
    ]
    const before = steps[index - 1]
    return before !== undefined && isGap(before, step) ? [[(before + step) / 2, null], point] : [point]
  })
}

/** Return the lines across the gaps of a curve. */
function gapsIn(
  { steps, values }: Series,
  isGap: (from: number, to: number) => boolean,
  isLogarithmic: boolean,
): [number, number | null][] {
  const isDrawn = (value: number | null | undefined) => value != null && !(isLogarithmic && value <= 0)
  return steps.flatMap((step, index): [number, number | null][] => {
    const [before, from, to] = [steps[index - 1], values[index - 1], values[index]]
    if (before === undefined || !isGap(before, step) || !isDrawn(from) || !isDrawn(to)) return []
    return [
      [before, from ?? null],
      [step, to ?? null],
      [step, null],
    ]
  })
}

function drawn(curve: Series, gridIndex: number, shown: Shown): (LineSeriesOption | ScatterSeriesOption)[] {
  const { theme, step, words, isLogarithmic } = shown
  const colour = shown.colours.get(curve.key) ?? COLOURS[theme][0] ?? ''
  const finite = curve.values.filter((value): value is number => value !== null)
  const ink = INKS[theme]
  const top = finite.length ? finite.reduce((most, value) => Math.max(most, value), -Infinity) : 1
  const isGap = gapsOf(curve.steps)
  // No line leads to a point between two gaps.
  const alone = new Set(
    curve.steps.filter((at, index) => {
      const [before, after] = [curve.steps[index - 1], curve.steps[index + 1]]
      return (before === undefined || isGap(before, at)) && (after === undefined || isGap(at, after))
    }),
  )
  const line: LineSeriesOption = {
    type: 'line',
    name: curve.name,
    xAxisIndex: gridIndex,
    yAxisIndex: gridIndex,
    data: pointsOf(curve, isGap, isLogarithmic),
    showSymbol: curve.steps.length <= FEW || alone.size > 0,
    symbolSize: (point: [number]) => (curve.steps.length <= FEW || alone.has(point[0]) ? 4 : 0),
    lineStyle: { width: 1.6, color: colour },
    itemStyle: { color: colour },
    sampling: 'lttb',
    ...(step === null
      ? {}
      : {
          markLine: {
            silent: true,
            symbol: 'none',
            label: { show: false },
            lineStyle: { color: ink.chosen, type: 'solid', width: 1 },
            data: [{ xAxis: step }],
          },
        }),
  }
  const sick: ScatterSeriesOption = {
    type: 'scatter',
    name: curve.name,
    xAxisIndex: gridIndex,
    yAxisIndex: gridIndex,
    symbol: 'path://M0 1 L1 0 L5 4 L9 0 L10 1 L6 5 L10 9 L9 10 L5 6 L1 10 L0 9 L4 5 Z',
    symbolSize: 9,
    itemStyle: { color: ink.hit },
    // A step without a number has no height: mark it at the top.
    data: curve.sick.map((at) => [at.step, top, at.isNan ? words.nan : words.infinite]),
  }
  const gaps: LineSeriesOption = {
    type: 'line',
    name: '',
    silent: true,
    xAxisIndex: gridIndex,
    yAxisIndex: gridIndex,
    data: gapsIn(curve, isGap, isLogarithmic),
    showSymbol: false,
    lineStyle: { width: 1, color: colour, type: 'dashed', opacity: 0.5 },
  }
  return [line, ...(gaps.data?.length ? [gaps] : []), ...(curve.sick.length ? [sick] : [])]
}
