import { MultiSelect, Select, Skeleton, useComputedColorScheme } from '@mantine/core'
import { lazy, Suspense, useMemo } from 'react'
import { useTranslation } from 'react-i18next'
import { useSession } from '~/api/queries'
import { COLOURS } from '~/panels/curves/colours'
import curves from '~/panels/curves/curves.module.css'
import { nearestStep } from '~/panels/curves/series'
import { curvesTexts } from '~/panels/curves/texts'
import { useGoToStep } from '~/panels/overview/useGoTo'
import { COLUMNS, drawnItems, factSeries, itemsOf, MOST_CURVES, tableOf, type Choice } from './facts'
import classes from './findings.module.css'
import { useFacts } from './queries'
import { findingsTexts } from './texts'

const Chart = lazy(() => import('~/panels/curves/Chart'))

/** A column of the facts over the steps, for some items of its table. */
export function FactCurves({ choice, choose }: { choice: Choice; choose: (choice: Choice) => void }) {
  const { t } = useTranslation(findingsTexts)
  const { t: tc } = useTranslation(curvesTexts)
  const theme = useComputedColorScheme('light', { getInitialValueInEffect: false })
  const { data: session } = useSession()
  const goToStep = useGoToStep()
  const { data: facts, error } = useFacts(tableOf(choice.column))
  const items = useMemo(() => (facts ? itemsOf(facts) : []), [facts])
  const drawn = useMemo(() => drawnItems(choice, items), [choice, items])
  const series = useMemo(
    () => (facts ? factSeries(facts, choice.column, drawn) : []),
    [facts, choice.column, drawn],
  )
  const colours = useMemo(
    () => new Map(series.map(({ key }, index) => [key, COLOURS[theme][index] ?? ''])),
    [series, theme],
  )
  const fact = t(`columns.${choice.column}`)
  const isUnknown = series.every(({ values }) => values.every((value) => value === null))
  return (
    <section className={classes['facts']} aria-label={t('facts')} data-testid="facts">
      <div className={classes['choice']}>
        <Select
          aria-label={t('column')}
          w={300}
          allowDeselect={false}
          value={choice.column}
          data={COLUMNS.map((column) => ({ value: column, label: t(`columns.${column}`) }))}
          onChange={(column) => column && choose({ column, names: null })}
        />
        {items.length > 1 && (
          <MultiSelect
            aria-label={t('items')}
            placeholder={drawn.length === 0 ? t('chooseItems') : ''}
            className={classes['items'] ?? ''}
            searchable
            maxValues={MOST_CURVES}
            limit={100}
            data={items}
            value={drawn}
            onChange={(names) => choose({ ...choice, names })}
          />
        )}
      </div>
      {error && !facts ? (
        <p className={classes['quiet']}>{error.message}</p>
      ) : !facts ? (
        <Skeleton height={190} mt={6} />
      ) : items.length === 0 || isUnknown ? (
        <p className={classes['quiet']} data-testid="facts-empty">
          {t(items.length === 0 ? 'noRows' : 'noValues')}
        </p>
      ) : (
        <>
          {items.length > 1 && (
            <div className={classes['keys']}>
              {series.map(({ key, name }) => (
                <span key={key} className={curves['key']} data-testid="fact-curve">
                  <span
                    className={curves['swatch']}
                    style={{ background: colours.get(key), borderColor: colours.get(key) }}
                  />
                  {name}
                </span>
              ))}
            </div>
          )}
          <div className={classes['chart']}>
            <Suspense fallback={<Skeleton style={{ flex: 1 }} radius={0} />}>
              <Chart
                series={series}
                colours={colours}
                step={session?.state === 'running' ? null : (session?.step ?? null)}
                lastStep={Math.max(session?.step ?? 0, ...series.map(({ steps }) => steps.at(-1) ?? 0))}
                isLogarithmic={false}
                theme={theme}
                label={t('chart', { fact, names: drawn.join(', ') })}
                words={{
                  kind: () => fact,
                  step: (step) => t('step', { step }),
                  nan: tc('nan'),
                  infinite: tc('infinite'),
                }}
                onStep={(at) => {
                  const step = nearestStep(series, at)
                  if (step !== null) goToStep(step)
                }}
              />
            </Suspense>
          </div>
        </>
      )}
    </section>
  )
}
