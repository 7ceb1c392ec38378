import { useTranslation } from 'react-i18next'
import { MEASURES } from '~/api/statistics'
import type { ComparedStatistics } from '~/api/types'
import { count, short } from '~/parts/numbers'
import classes from './compare.module.css'
import { compareTexts } from './texts'

const SIDES = ['a', 'b', 'difference'] as const

/** The statistics of both sides and of the difference, one row each; dashes while they load. */
export function BothStatistics({ statistics }: { statistics: ComparedStatistics | undefined }) {
  const { t } = useTranslation(compareTexts)
  return (
    <table className={classes['statistics']} aria-label={t('statistics')} data-testid="compare-statistics">
      <thead>
        <tr>
          <th aria-label={t('side')} />
          {[...MEASURES, 'nan', 'inf'].map((name) => (
            <th key={name} scope="col">
              {t(`names.${name}`)}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {SIDES.map((side) => {
          const row = statistics?.[side]
          const isKnown = (name: string) => row != null && !row.unknown.includes(name)
          const infinite = (row?.pos_inf_count ?? 0) + (row?.neg_inf_count ?? 0)
          return (
            <tr key={side} data-testid={`compare-statistics-${side}`}>
              <th scope="row">{t(side)}</th>
              {MEASURES.map((name) => (
                <td key={name}>{short(row?.[name])}</td>
              ))}
              <td data-bad={(row?.nan_count ?? 0) > 0}>
                {isKnown('nan_count') ? count(row?.nan_count ?? 0) : '–'}
              </td>
              <td data-bad={infinite > 0}>{isKnown('pos_inf_count') ? count(infinite) : '–'}</td>
            </tr>
          )
        })}
      </tbody>
    </table>
  )
}
